"""What keeps a job from being valid: its manifest, or its gang scheduler. :mod:`~dtj.core.policies.pods` has what the
API server says of its pods."""

from __future__ import annotations

from collections.abc import Iterable

from dtj.api.names import Reason
from dtj.core.actions import Decision, Delete, Emit
from dtj.core.conditions import DesiredCondition, DesiredConditions
from dtj.core.context import JobContext
from dtj.core.policies import admission
from dtj.core.status_update import write
from dtj.core.validity import Problem


def report_problems(context: JobContext) -> Decision | None:
    """Report what is wrong with the job; nothing is created. Kueue would reserve quota for a job that cannot start."""
    found = (*context.problems, *admission.problems(context))
    return keep_out(context, found) if found else None


def keep_out(context: JobContext, found: Iterable[Problem]) -> Decision:
    """Report what is wrong, take the job out of its queue, and look for a gang scheduler that may come."""
    return report_invalid(context, found).then(*_leave_queue(context), *admission.look_again(context))


def _leave_queue(context: JobContext) -> tuple[Delete, ...]:
    """Ask for nothing more for a job that is wrong and has no pod. A Workload that others made is theirs to delete."""
    if context.has_something_to_stop or not context.problems or context.job.prebuilt_workload:
        return ()
    return admission.drop(context)


def report_invalid(context: JobContext, found: Iterable[Problem]) -> Decision:
    """Report what is wrong; what runs already is left alone. The manifest may be one that cannot be read."""
    found = tuple(found)
    reason = found[0].reason if found else Reason.INVALID_SPEC
    message = "; ".join(problem.message for problem in found) or "spec: cannot be read"
    desired = DesiredConditions(
        pods_ready=DesiredCondition("False", Reason.PENDING, "the job is not valid"),
        invalid=DesiredCondition("True", reason, message),
    )
    return write(context, context.job.status, desired).if_written(Emit("Warning", reason, message))
