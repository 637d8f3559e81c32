"""The logs of a run on this machine, as those of a job on a cluster are shown."""

from __future__ import annotations

import asyncio
import heapq
import signal
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dtj.api.job import Job
from dtj.cli.common.terminal import Exit, say
from dtj.cli.logs.show import Output, print_first_error
from dtj.client.diagnosis import how_job_ended
from dtj.client.logs import ErrorFinder, LogLine, LogNote, LogSelection, NothingToRead, cause_of, check_replica
from dtj.local import run_directory
from dtj.local.replica_logs import ReplicaLog, last, replica_logs
from dtj.local.run_directory import RunDirectory, RunError
from dtj.local.run_record import read_job

POLL_SECONDS: Final = 0.2
"""Between two looks at the logs of a run that is followed."""


def show_run(run: str, runs: Path, selection: LogSelection, *, follow: bool, only_error: bool, timestamps: bool) -> int:
    """Print the logs of a run on this machine. Returns the exit code."""
    try:
        directory = run_directory.find(run, runs)
        job = Job.from_object(read_job(directory))
        if only_error:
            return _show_first_error(directory, job, run)
        return asyncio.run(_show(directory, job, selection, follow=follow, timestamps=timestamps))
    except (RunError, NothingToRead) as error:
        say(str(error), err=True)
        return Exit.USAGE
    except KeyboardInterrupt:
        if directory.running:
            say(f"{job.name} continues to run.", err=True)
        return Exit.SIGNAL + signal.SIGINT


async def _show(directory: RunDirectory, job: Job, selection: LogSelection, *, follow: bool, timestamps: bool) -> int:
    logs = _selected(directory, selection)
    if not logs:
        check_replica(job, selection)
    if not (logs or follow):
        say(f"{job.name}: no such replica has written anything yet", err=True)
        return Exit.OK
    output = Output(job, prefix=selection.role is None or selection.index is None, timestamps=timestamps)
    await output.show(followed(directory, logs, selection) if follow else _read(logs, selection))
    return Exit.OK


def _selected(directory: RunDirectory, selection: LogSelection) -> tuple[ReplicaLog, ...]:
    return tuple(
        log
        for log in replica_logs(directory)
        if selection.role in (None, log.role) and selection.index in (None, log.index)
    )


async def _read(logs: Iterable[ReplicaLog], selection: LogSelection) -> AsyncGenerator[LogLine | LogNote, None]:
    """All lines that there are now, by time."""
    merged = heapq.merge(*(_lines(log, selection) for log in logs), key=lambda found: found[0])
    for _, line in merged:
        yield line


def _lines(log: ReplicaLog, selection: LogSelection) -> Iterator[tuple[datetime, LogLine | LogNote]]:
    """The lines of a log with their times, which never go back: a line without one has that of the line before it."""
    at = datetime.min.replace(tzinfo=UTC)
    since = datetime.now(UTC) - timedelta(seconds=selection.since) if selection.since is not None else at
    try:
        for line in last(log.read(), selection.tail):
            at = max(at, line.at or at)
            if at >= since:
                yield at, LogLine(log.title, log.role, line)
    except OSError as error:
        yield at, LogNote(f"{log.title}: its log cannot be read: {error.strerror}")


async def followed(
    directory: RunDirectory, logs: tuple[ReplicaLog, ...], selection: LogSelection
) -> AsyncGenerator[LogLine | LogNote, None]:
    """What there is, by time, and then what comes, until nobody runs the run any more."""
    async for found in _read(logs, selection):
        yield found
    known = {log.title: log for log in logs}
    while True:
        # Asked first: what was written before the end is read after it.
        running = directory.running
        for log in _selected(directory, selection):
            if log.title not in known:
                known[log.title] = log
                yield LogNote(f"{log.title} has started")
        for log in known.values():
            for line in log.read(whole=not running):
                yield LogLine(log.title, log.role, line)
        if not running:
            break
        await asyncio.sleep(POLL_SECONDS)
    yield LogNote(_end(directory))


def _end(directory: RunDirectory) -> str:
    job = Job.from_object(read_job(directory))
    if job.status.terminal:
        return how_job_ended(job)
    if job.status.state == run_directory.STOPPED:
        return f"{job.name} was stopped"
    return f"{job.name} is not running: it has ended without a record"


def _show_first_error(directory: RunDirectory, job: Job, run: str) -> int:
    cause = cause_of(job)
    name = f"{cause.role}-{cause.index}"
    log = next((log for log in replica_logs(directory) if log.title == name), None)
    finder = ErrorFinder(cause)
    for line in log.read() if log is not None else ():
        finder.take(line.text)
    more = f"dtj logs --run {run} --role {cause.role} --index {cause.index}"
    return print_first_error(finder.result(), more=more)
