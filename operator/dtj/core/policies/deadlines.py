"""The time limits of a job: how long it may take to start, and how long it may run."""

from __future__ import annotations

from datetime import datetime

from dtj.api.job import Job, parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import OnStall
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, RequeueAfter
from dtj.core.conditions import pods_ready
from dtj.core.context import JobContext
from dtj.core.outcome import Failure
from dtj.core.policies import admission, stall
from dtj.core.policies.finish import finish
from dtj.core.status import time_after
from dtj.core.status_update import counted


def fail_if_late(context: JobContext) -> Decision | None:
    """End the job if one of its time limits has passed."""
    late = _late(context)
    return finish(context, late) if late is not None else None


def wake_ups(context: JobContext) -> tuple[RequeueAfter, ...]:
    """When to look again, though nothing happens until then."""
    due = (_end_due(context), _start_due(context))
    return tuple(RequeueAfter(context.seconds_until(moment)) for moment in due if moment is not None)


def _end_due(context: JobContext) -> datetime | None:
    """When the job fails because it has run too long; None if it never does, or has not begun."""
    return time_after(parse_time(context.job.status.start_time), context.spec.run_policy.active_deadline_seconds)


def _start_due(context: JobContext) -> datetime | None:
    """When the job fails because its pods are not ready yet; None if it never does, or once they were."""
    status = context.job.status
    if status.ready_time is not None or status.is_true(Condition.SUSPENDED):
        return None  # it was ready once, or its resumption is about to be recorded
    return time_after(could_begin_at(context.job, status), context.spec.run_policy.start_deadline_seconds)


def could_begin_at(job: Job, status: JobStatus) -> datetime | None:
    """When the job could first begin this run: at its creation, or when it was resumed or admitted the last time."""
    suspended = status.condition(Condition.SUSPENDED)
    resumed = suspended is not None and suspended.reason == Reason.RESUMED
    return parse_time(suspended.last_transition_time) if suspended is not None and resumed else job.created_at


def _late(context: JobContext) -> Failure | None:
    """The deadline that has passed, if one has."""
    policy = context.spec.run_policy
    due = _end_due(context)
    if due is not None and context.now >= due:
        message = f"the job has run for {policy.active_deadline_seconds} s, which is runPolicy.activeDeadlineSeconds"
        return Failure(Reason.DEADLINE_EXCEEDED, message)
    stalled = stall.seen(context)
    if stalled is not None and policy.on_stall is OnStall.FAIL:
        return Failure(Reason.STALLED, stalled)
    due = _start_due(context)
    if due is None or context.now < due:
        return None
    found = (*context.problems, *admission.problems(context))
    ready = pods_ready(context, counted(context))
    if ready.status == "True" and not found:
        return None
    why = "; ".join(problem.message for problem in found) or _recorded(context.job.status) or ready.message
    limit = f"within {policy.start_deadline_seconds} s, which is runPolicy.startDeadlineSeconds"
    return Failure(Reason.START_DEADLINE_EXCEEDED, f"not all pods were ready {limit}: {why}")


def _recorded(status: JobStatus) -> str:
    """What the status says that keeps the job from starting and is no pod of its own."""
    invalid, ready = status.when_true(Condition.INVALID), status.condition(Condition.PODS_READY)
    if invalid is not None:
        return invalid.message
    return ready.message if ready is not None and ready.reason == Reason.NAME_TAKEN else ""
