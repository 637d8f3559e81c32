"""For how long a job is kept after its end: ``runPolicy.ttlSecondsAfterFinished``."""

from __future__ import annotations

from dtj.api import kueue
from dtj.api.job import parse_time
from dtj.core.actions import Decision, DeleteJob, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.status import time_after


def delete_when_expired(context: JobContext) -> Decision | None:
    """Delete the finished job once its time is over; until then look again at that time."""
    if kueue.MULTIKUEUE_ORIGIN in context.job.labels:
        return None  # MultiKueue deletes the copy; until then it reads how the job ended
    seconds = context.spec.run_policy.ttl_seconds_after_finished
    due = time_after(parse_time(context.job.status.completion_time), seconds)
    if due is None:
        return None
    wait = (due - context.now).total_seconds()
    return Decision.of(RequeueAfter(wait)) if wait > 0 else Decision((DeleteJob(),), final=True)


def kept(context: JobContext) -> tuple[RequeueAfter, ...]:
    """When to look again at a job that has just ended."""
    seconds = context.spec.run_policy.ttl_seconds_after_finished
    return (RequeueAfter(float(seconds)),) if seconds is not None else ()
