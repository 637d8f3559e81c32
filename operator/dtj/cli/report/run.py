"""What the folder of a local run holds about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

from dtj.api.job import Job, micro_time, parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import KIND, State
from dtj.cli.report.evidence import LOG_BYTES, Evidence, Log, PhaseChange, Setting, Unread, leaders, scalars_in
from dtj.client.overview import Event, aggregated
from dtj.local.run_directory import STOPPED, RunDirectory, RunError
from dtj.local.run_record import Start, read_manifest, read_objects, read_record


def gather(directory: RunDirectory) -> Evidence:
    """All that is known of a run on this machine, with all of its starts. Raises RunError."""
    unread: list[Unread] = []
    manifest, starts = read_manifest(directory), read_record(directory.record).starts
    found: list[JsonObject] = []
    for file in (*directory.earlier_objects(), directory.objects):
        try:
            found += read_objects(file)
        except RunError as error:
            if file == directory.objects:
                unread.append(Unread("status, pods and events", str(error)))
    changes = [change for start in starts for change in start.phases]
    *earlier, job = [*_jobs(directory, manifest, _of_kind(found, KIND), starts)] or [manifest]
    return Evidence(
        source=f"run {directory.path.resolve().name} on this machine",
        taken_at=datetime.now(UTC),
        job=job,
        earlier=tuple(earlier),
        objects={"pods": tuple(_of_kind(found, "Pod"))},
        events=aggregated(map(Event.from_object, _of_kind(found, "Event"))),
        logs=tuple(log.end() for log in _logs(directory, unread)),
        scalars=scalars_in(_metrics(directory, job, unread)),
        phases=tuple(PhaseChange(each.replica, each.phase, at) for each in changes if (at := parse_time(each.at))),
        settings=tuple(_settings(starts)),
        on_this_machine=True,
        unread=tuple(unread),
    )


def _of_kind(stored: list[JsonObject], kind: str) -> list[JsonObject]:
    return [item for item in stored if item.get("kind") == kind]


def _jobs(
    directory: RunDirectory, manifest: JsonObject, ended: list[JsonObject], starts: tuple[Start, ...]
) -> Iterator[JsonObject]:
    """The job as it was at the end of each start. A start that still runs, or was killed, has left its record alone."""
    if not starts:  # its file is gone, or damaged
        yield from ended
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        until = following.started_at if following is not None else "9"  # later than every time, as text
        created = ((text(dig(job, "metadata", "creationTimestamp")), job) for job in ended)
        status: JsonObject = {"state": State.RUNNING, "attempt": 1, "startTime": start.started_at}
        if following is not None or not directory.running:
            status |= {"state": STOPPED, "completionTime": start.ended_at or _last_sign(directory, start, following)}
        known = (job for at, job in created if start.started_at <= at < until)
        yield next(known, {**manifest, "status": status})


def _last_sign(directory: RunDirectory, start: Start, following: Start | None) -> str:
    """The last time at which a killed start is known to have been alive."""
    logs = directory.replica_logs() if following is None else ()
    written = (micro_time(datetime.fromtimestamp(log.stat().st_mtime, UTC)) for log in logs)
    return max([start.started_at, *(change.at for change in start.phases), *written])


def _metrics(directory: RunDirectory, job: JsonObject, unread: list[Unread]) -> Iterator[str]:
    """What the leader measured in all starts of the run: the texts of its files."""
    for replica in leaders(Job.from_object(job)):
        file = directory.replica_metrics(replica.hostname)
        try:
            yield file.read_text(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            unread.append(Unread(f"metrics of {file.stem}", error.strerror or str(error)))


def _settings(starts: tuple[Start, ...]) -> Iterator[Setting]:
    """With what the run was started, the last time."""
    for start in starts[-1:]:
        if start.command:
            yield Setting("Command", "command", shlex.join(start.command))
        yield Setting("Command", "folder", start.folder)
        yield from (Setting("Versions", *pair) for pair in start.versions.items())
        yield from (Setting("Host", *pair) for pair in start.host.items())


def _logs(directory: RunDirectory, unread: list[Unread]) -> Iterator[Log]:
    """One a replica, and the runner's own."""
    for file in sorted(directory.logs.glob("*.log")):
        try:
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - LOG_BYTES))
                yield Log(file.stem, opened.read().decode(errors="replace"))
        except OSError as error:
            unread.append(Unread(f"log of {file.stem}", error.strerror or str(error)))
