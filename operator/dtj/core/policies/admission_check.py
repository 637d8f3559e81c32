"""What keeps a job from being valid: its manifest, its gang scheduler, and what the API server answers to a dry run."""

from __future__ import annotations

from collections.abc import Iterable

from dtj.api.names import Reason
from dtj.core.actions import CheckPods, Decision, DeleteGang, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions
from dtj.core.context import REJECTION_TTL, JobContext
from dtj.core.pod_creation import FirstPods
from dtj.core.policies import gang
from dtj.core.status_update import counted, write
from dtj.core.validity import Problem


def report_problems(context: JobContext) -> Decision | None:
    """Report what is wrong with the job; nothing is created. Kueue would reserve quota for a job that cannot start."""
    found = (*context.problems, *gang.problems(context))
    return keep_out(context, found) if found else None


def keep_out(context: JobContext, found: Iterable[Problem]) -> Decision:
    """Report what is wrong, take the job out of its queue, and look for a gang scheduler that may come."""
    return report_invalid(context, found).then(*_leave_queue(context), *gang.look_again(context))


def _leave_queue(context: JobContext) -> tuple[DeleteGang, ...]:
    """Ask for nothing more for a job that is wrong and has no pod. A Workload that others made is theirs to delete."""
    if context.has_something_to_stop or not context.problems or context.job.prebuilt_workload:
        return ()
    return gang.drop(context)


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


def check_template(context: JobContext) -> Decision | None:
    """Ask the API server before pods are created: does it take one of each role? Its words go into the status.

    If the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it. A job
    that has started does not become invalid: what is refused then is reported when its pod is created.
    """
    verdict = context.template_verdict
    if verdict is None or (verdict.wants_restricted and not verdict.restricted):
        restricted = context.observed.platform.restricted or verdict is not None
        check = CheckPods(context.job.generation, FirstPods(context, restricted), restricted)
        return _obstructed(context).then(check)
    if not verdict.errors or context.own or context.job.status.start_time is not None:
        return None
    found = (Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors)
    again = context.seconds_until(verdict.at + REJECTION_TTL)
    return report_invalid(context, found).then(RequeueAfter(again))


def _obstructed(context: JobContext) -> Decision:
    """Nothing else is written before the pods are checked, which may be what keeps failing."""
    if not context.observed.obstacle:
        return Decision()
    return write(context, counted(context), DesiredConditions())
