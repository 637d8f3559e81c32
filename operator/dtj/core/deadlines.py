"""The time limits of a job: how long it may take to start, how long it may run, how long it is kept after its end."""

from __future__ import annotations

from datetime import datetime, timedelta

from dtj.api.job import Job, parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus


def active(job: Job, spec: JobSpec) -> datetime | None:
    """When the job fails because it has run too long; None where it never does, or has not begun."""
    return _after(parse_time(job.status.start_time), spec.run_policy.active_deadline_seconds)


def start(job: Job, spec: JobSpec) -> datetime | None:
    """When the job fails because its pods are not ready yet; None where it never does, or once they were."""
    suspended = job.status.condition(Condition.SUSPENDED)
    if job.status.ready_time is not None or (suspended is not None and suspended.status == "True"):
        return None  # it was ready once, or its resumption is about to be recorded
    return _after(begun(job, job.status), spec.run_policy.start_deadline_seconds)


def begun(job: Job, status: JobStatus) -> datetime | None:
    """When the job could first begin this run: at its creation, or when it was resumed or admitted the last time."""
    suspended = status.condition(Condition.SUSPENDED)
    resumed = suspended is not None and suspended.reason == Reason.RESUMED
    return parse_time(suspended.last_transition_time) if suspended is not None and resumed else job.created_at


def removal(job: Job, spec: JobSpec) -> datetime | None:
    """When the finished job is deleted; None where it is kept."""
    return _after(parse_time(job.status.completion_time), spec.run_policy.ttl_seconds_after_finished)


def _after(begin: datetime | None, seconds: int | None) -> datetime | None:
    if begin is None or seconds is None:
        return None
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:
        return None
