"""The summary of a cluster's job that has ended, or is no longer followed: from the job to lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeAlias

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.cli.common.console import Text
from dtj.cli.common.formatting import restarts, short_number, short_time
from dtj.cli.common.next_steps import TERMINAL_WIDTH, Step, next_block
from dtj.cli.run.cluster_view import lasted
from dtj.cli.run.render_end import cause_lines, field, headline, measures
from dtj.client.diagnosis import explaining_condition
from dtj.core.outcome import how_replica_ended

CommandLine: TypeAlias = Callable[..., str]
"""Makes of a command's words the line to type."""


def end_of_job(job: Job, *, again: CommandLine, now: datetime, width: int = TERMINAL_WIDTH) -> Iterator[Text]:
    """How the job ended, what it left, and what to type next."""
    after = short_time(lasted(job, now=now))
    if job.status.is_true(Condition.COMPLETE):
        yield headline(job.name, "succeeded", "bold green", after=after)
        yield from _results(job)
    elif job.status.is_true(Condition.FAILED):
        yield headline(job.name, "failed", "bold red", after=after)
        yield from _failure(job)
    else:
        yield headline(job.name, "cannot run", "bold red", after=after)
        because = explaining_condition(job)
        yield field("cause", because.message if because is not None else "not known")
    yield from next_commands(job, again=again, width=width)


def next_commands(job: Job, *, again: CommandLine, width: int = TERMINAL_WIDTH) -> Iterator[Text]:
    """What to type next about a job that is there."""
    return next_block(tuple(_steps(job, again)), width=width)


def _steps(job: Job, again: CommandLine) -> Iterator[Step]:
    if job.status.is_true(Condition.INVALID):
        yield Step(again("delete", job.name), "delete it, fix the manifest and submit it again")
        return
    if job.status.terminal:
        if job.status.root_cause is not None and job.status.is_true(Condition.FAILED):
            yield Step(again("logs", job.name, "--first-error"), "show the first error")
        yield Step(again("logs", job.name), "show what its pods printed")
        yield Step(again("status", job.name), "show all details")
        yield Step(again("delete", job.name), "delete it and its pods")
        return
    yield Step(again("status", job.name), "show its progress")
    yield Step(again("logs", "-f", job.name), "show what its pods print")
    yield Step(again("wait", job.name), "wait until it ends")
    yield Step(again("suspend", job.name), "stop it, to resume it later")


def _results(job: Job) -> Iterator[Text]:
    progress = job.status.progress
    if progress is not None and progress.metrics:
        yield field("metrics", "  ".join(f"{name} {value}" for name, value in progress.metrics.items()))
    if progress is not None and progress.examples_per_second is not None:
        yield field("speed", f"{short_number(progress.examples_per_second)} examples/s at the end")
    if job.status.export is not None:
        yield field("model", job.status.export.path + measures(job.status.export))
    yield from _restarts(job)


def _failure(job: Job) -> Iterator[Text]:
    because = explaining_condition(job)
    if because is not None:
        yield field("why", because.message)
    cause = job.status.root_cause
    if cause is not None:
        yield from cause_lines(cause, how=how_replica_ended(cause) + (f" on {cause.node}" if cause.node else ""))
    yield from _restarts(job)


def _restarts(job: Job) -> Iterator[Text]:
    counts = job.status.restarts
    if counts.total:
        yield field("restarts", restarts(counts))
