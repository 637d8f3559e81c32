"""Stalls: whether a training whose pods are all ready stands still, and what follows (``runPolicy.onStall``).

A stall needs evidence by this process of the operator: answers of the same pod that show the same place, while all pods
stay ready, and ``runPolicy.stallTimeoutSeconds`` between the first and the latest of them. That nobody asked, that the
operator was away, or that a pod did not answer is no evidence; it is reported as such.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from dtj.api import names
from dtj.api.names import Condition, Reason
from dtj.api.spec import OnStall
from dtj.core.actions import AskForStacks, Decision
from dtj.core.conditions import DesiredCondition
from dtj.core.context import JobContext
from dtj.core.outcome import Failure
from dtj.core.pod_failure import PodFailureClass
from dtj.core.policies import budgets
from dtj.core.policies.attempt import begin_attempt
from dtj.core.policies.finish import finish
from dtj.core.progress import progress
from dtj.core.replicas import TRAINING_ROLES

MAX_STACKS: Final = 64
"""Pods of a job that are asked for their stacks: the first ones."""

_NOT_STALLED = DesiredCondition("False", Reason.NOT_STALLED)


def seen(context: JobContext) -> str | None:
    """What this process has seen of a stall, in one line; None where it has seen none."""
    timeout, answer = _timeout(context), context.latest_answer
    if timeout is None or answer is None or answer.still_for < timeout:
        return None
    reported = progress(context)
    assert reported is not None
    where = f"step {reported.step}" if reported.step is not None else reported.phase or "no step"
    seconds = context.spec.run_policy.stall_timeout_seconds
    return (
        f"all pods are ready, but the training has not advanced for {seconds} s, which is "
        f"runPolicy.stallTimeoutSeconds: {where} since {reported.updated_at}"
    )


def condition(context: JobContext) -> DesiredCondition:
    """What the condition ProgressStalled should say; Unknown where the pod that knows has not answered for so long.

    An operator that has just started has seen nothing yet: until it has, what was recorded stands.
    """
    timeout = _timeout(context)
    if timeout is None:
        return _NOT_STALLED
    found = seen(context)
    if found is not None:
        return DesiredCondition("True", Reason.STALLED, found)
    silence = context.observed.silence
    if silence is not None and silence.lasted >= timeout and silence.pod.uid in context.current_uids:
        return DesiredCondition("Unknown", Reason.PROGRESS_UNKNOWN, _unanswered(context, silence.pod.name))
    return _recorded(context) or _NOT_STALLED


def _timeout(context: JobContext) -> timedelta | None:
    """None where the job cannot stall: no time is set, not all pods are ready, or the replica that decides is done."""
    seconds = context.spec.run_policy.stall_timeout_seconds
    over = context.leader in context.completed
    if seconds is None or over or not context.job.status.is_true(Condition.PODS_READY):
        return None
    return timedelta(seconds=seconds)


def _recorded(context: JobContext) -> DesiredCondition | None:
    """What was found before, by another process of the operator, and nothing that was heard since contradicts."""
    before, answer = context.job.status.condition(Condition.PROGRESS_STALLED), context.latest_answer
    if before is None or before.status == "False" or before.reason not in (Reason.STALLED, Reason.PROGRESS_UNKNOWN):
        return None
    known = context.job.status.progress
    still = before.status == "True" and answer is not None and known is not None and not answer.progress.advanced(known)
    if answer is not None and not still:
        return None
    return DesiredCondition(before.status, Reason(before.reason), before.message)


def _unanswered(context: JobContext, pod: str) -> str:
    seconds = context.spec.run_policy.stall_timeout_seconds
    return (
        f"stalls cannot be detected: {pod} has not answered GET /status on port {names.STATUS_PORT} for {seconds} s, "
        "which is runPolicy.stallTimeoutSeconds; have the training report its progress, let the operator reach that "
        "port, or unset runPolicy.stallTimeoutSeconds"
    )


def ask_for_stacks(context: JobContext, decision: Decision) -> tuple[AskForStacks, ...]:
    """Ask the pods of a job that stands still where their threads are: once, in the pass that records the stall."""
    known = context.job.status.terminal or context.job.status.is_true(Condition.PROGRESS_STALLED)
    if known or seen(context) is None or decision.status is None:
        return ()
    reached = [pod for pod in context.current if pod.role in TRAINING_ROLES and pod.ip and not pod.main_container_ended]
    return (AskForStacks(tuple(reached[:MAX_STACKS])),) if reached else ()


def restart_stalled(context: JobContext) -> Decision | None:
    """All start again, as after an error of their own: a job that always stands still must end."""
    why = seen(context)
    if why is None or context.spec.run_policy.on_stall is not OnStall.RESTART:
        return None
    status = context.job.status
    spent = budgets.used_up(context.spec, status)
    if spent is not None:
        return finish(context, Failure(Reason.STALLED, why + spent))
    return begin_attempt(context, "Warning", why, budgets.charge(status, PodFailureClass.USER_ERROR))
