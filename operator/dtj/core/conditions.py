"""Every condition of a job, Ready included, and the one word that sums them up.

Conditions follow KEP-1623: known types are there from the first write on, a transition time moves only when
``status`` changes, and conditions of types that are not ours are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from dtj.api.names import Condition, Reason, State
from dtj.api.spec import Role
from dtj.api.status import MAX_CONDITIONS, ConditionStatus, JobStatus
from dtj.core import blockers
from dtj.core.context import JobContext
from dtj.core.messages import cut, first_few
from dtj.core.observed import Blocker, Pod
from dtj.core.pod_state import replica_of
from dtj.core.status import format_time, is_ready


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """What a condition should say."""

    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class DesiredConditions:
    """What each condition should say; the defaults are those of a job that has not begun."""

    pods_ready: DesiredCondition = DesiredCondition("False", Reason.WAITING_FOR_PODS)
    suspended: DesiredCondition = DesiredCondition("False", Reason.NOT_SUSPENDED)
    restarting: DesiredCondition = DesiredCondition("False", Reason.NOT_RESTARTING)
    progress_stalled: DesiredCondition = DesiredCondition("False", Reason.NOT_STALLED)
    invalid: DesiredCondition = DesiredCondition("False", Reason.VALID)
    success_criteria_met: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    failure_target: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    complete: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    failed: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)

    def items(self) -> tuple[tuple[Condition, DesiredCondition], ...]:
        """All of them, with those that follow from the others."""
        ready = self._ready()
        return (
            (Condition.READY, ready),
            (Condition.RECONCILING, self._reconciling(ready)),
            (Condition.STALLED, self._stalled()),
            (Condition.PODS_READY, self.pods_ready),
            (Condition.SUSPENDED, self.suspended),
            (Condition.RESTARTING, self.restarting),
            (Condition.PROGRESS_STALLED, self.progress_stalled),
            (Condition.INVALID, self.invalid),
            (Condition.SUCCESS_CRITERIA_MET, self.success_criteria_met),
            (Condition.FAILURE_TARGET, self.failure_target),
            (Condition.COMPLETE, self.complete),
            (Condition.FAILED, self.failed),
        )

    def _ready(self) -> DesiredCondition:
        """Whether the job is as its spec asks: it runs with all pods, or it is complete. Else the reason why not."""
        if self.complete.status == "True":
            return self.complete
        obstacles = (self.failed, self.failure_target, self.suspended, self.invalid, self.restarting)
        obstacle = next((each for each in obstacles if each.status == "True"), None)
        return self.pods_ready if obstacle is None else replace(obstacle, status="False")

    def _reconciling(self, ready: DesiredCondition) -> DesiredCondition:
        """Whether the operator works on what Ready lacks. What is suspended or invalid waits for somebody else."""
        waits = "True" in (self.failed.status, self.suspended.status, self.invalid.status)
        return replace(ready, status="False" if waits or ready.status == "True" else "True")

    def _stalled(self) -> DesiredCondition:
        """Whether the job cannot become ready any more. A failure that a restart may repair does not count."""
        return self.failed if self.failed.status == "True" else DesiredCondition("False", Reason.NOT_FAILED)


def conditions(
    current: tuple[ConditionStatus, ...],
    desired: Iterable[tuple[Condition, DesiredCondition]],
    *,
    generation: int,
    now: datetime,
) -> tuple[ConditionStatus, ...]:
    """``current`` with those that are ``desired`` in place; new ones at the end. Where there is no room for all, the
    last ones of other types give way: the API server would refuse the whole status."""
    found = {condition.type: condition for condition in current}
    for kind, wanted in desired:
        before = found.get(kind)
        moved = before is None or before.status != wanted.status
        found[kind] = ConditionStatus(
            type=kind,
            status=wanted.status,
            reason=wanted.reason,
            message=cut(wanted.message),
            last_transition_time=format_time(now) if moved or before is None else before.last_transition_time,
            observed_generation=generation,
        )
    others = [each for each in found if each not in Condition.__members__.values()]
    for each in others[max(0, MAX_CONDITIONS - len(found) + len(others)) :]:
        del found[each]
    return tuple(found.values())


def blocked_pods(context: JobContext) -> tuple[tuple[Pod, Blocker], ...]:
    """Our pods that something keeps from starting, and what, in the order of their replicas."""
    return tuple((pod, blocker) for pod, blocker in _ailing(context) if not pod.ready)


def failing_beside(context: JobContext) -> tuple[Pod, Blocker] | None:
    """The first of our pods that is ready, and has another container that fails; and what it says."""
    beside = ((pod, blocker) for pod, blocker in _ailing(context) if pod.ready and blocker.container)
    return next((each for each in beside if not blockers.may_pass(each[1])), None)


def _ailing(context: JobContext) -> Iterator[tuple[Pod, Blocker]]:
    """Our pods with a blocker, in the order of their replicas: by their status, or by events where that is silent."""
    by_name = {pod.name: pod for pod in context.current}
    ours = (by_name.get(name) for name in context.pod_names.values())
    troubles = context.observed.start_troubles
    pods = (
        replace(pod, blocker=troubles[pod.uid])
        if pod.uid in troubles and blockers.waits_without_a_word(pod, context.now)
        else pod
        for pod in ours
        if pod is not None
    )
    return blockers.ailing(pods, context.now)


def pods_ready(context: JobContext, status: JobStatus) -> DesiredCondition:
    """What the condition PodsReady should say; ``status`` counts the pods."""
    refusal = context.observed.refusal
    beside = failing_beside(context)
    ails = f"{beside[0].name}: {beside[1].message}" if beside is not None else ""
    others_train = context.all_ready and bool(context.outsiders)
    if refusal is not None and not others_train:
        return DesiredCondition("False", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
    if context.all_ready and not context.outsiders:
        some = f"Kueue has admitted {admitted_workers(context)}" if context.withheld else ""
        return DesiredCondition("True", Reason.ALL_PODS_READY, "; ".join(filter(None, (some, ails))))
    ready = f"{status.ready.replace('/', ' of ')} pods are ready"
    blocked = blockers.named(blocked_pods(context), context.now)
    words = f"{blocked[0].name}: {blocked[1].message}" if blocked is not None else ails
    why = f"; {words}" if words else ""
    if others_train:
        why = f"; {refusal.name}: {refusal.message}" if refusal is not None else why
        lacking = context.outsiders - context.spares
        if not lacking:
            up = sum(replica_of(pod) in context.spares and is_ready(pod) for pod in context.current)
            words = f"{up} of {len(context.spares)} spares are ready{why}"
            return DesiredCondition("True", Reason.ALL_PODS_READY, words)
        without = first_few(replica.hostname for replica in sorted(lacking))
        return DesiredCondition("True", Reason.ALL_PODS_READY, f"{ready}; the others train without {without}{why}")
    reason = blocked[1].reason if blocked is not None else Reason.WAITING_FOR_PODS
    return DesiredCondition("False", reason, ready + why)


def admitted_workers(context: JobContext) -> str:
    """How many of the workers that the job asks for Kueue has admitted."""
    given = context.spec.replicas(Role.WORKER)
    return f"{given} of {given + context.withheld} workers"


def with_conditions(context: JobContext, base: JobStatus, desired: DesiredConditions) -> JobStatus:
    """``base`` with conditions and summary as ``desired``; what that leaves open stays as it was."""
    desired = _carried_on(context.job.status, desired)
    wrong = context.tolerated or context.problems
    if wrong and desired.invalid.status != "True":
        what = wrong[0]
        desired = replace(desired, invalid=DesiredCondition("True", what.reason, what.message))
    obstacle = context.observed.obstacle
    if obstacle and desired.pods_ready.status != "True":
        desired = replace(desired, pods_ready=DesiredCondition("False", Reason.API_CALL_FAILED, obstacle))
    before = context.job.status
    was_ready = 0 < before.ready_attempt == base.attempt
    word, reason = state(
        desired,
        started=base.start_time is not None,
        before=State.RUNNING if was_ready else before.state if before.attempt == base.attempt else "",
    )
    generation = context.job.generation
    return base.model_copy(
        update={
            "observed_generation": generation,
            "state": str(word),
            "reason": str(reason),
            "conditions": conditions(before.conditions, desired.items(), generation=generation, now=context.now),
        }
    )


def _carried_on(status: JobStatus, desired: DesiredConditions) -> DesiredConditions:
    """A job that was suspended once is a resumed one, and one that restarts does so until it is ready or ends."""
    suspended = status.condition(Condition.SUSPENDED)
    if suspended is not None and desired.suspended.status != "True":
        was = suspended.status == "True" or suspended.reason == Reason.RESUMED
        desired = replace(desired, suspended=DesiredCondition("False", Reason.RESUMED)) if was else desired
    restarting = status.when_true(Condition.RESTARTING)
    over = "True" in (
        desired.pods_ready.status,
        desired.suspended.status,
        desired.success_criteria_met.status,
        desired.failure_target.status,
    )
    if restarting is not None and desired.restarting.status != "True" and not over:
        reason = Reason.recorded(restarting.reason, otherwise=Reason.NEW_ATTEMPT)
        going_on = DesiredCondition("True", reason, restarting.message)
        desired = replace(desired, restarting=going_on)
    return desired


_STEPS = (State.PENDING, State.STARTING, State.RUNNING)
"""The steps of an attempt, in order."""


def state(desired: DesiredConditions, *, started: bool, before: str = "") -> tuple[State, Reason]:
    """The one word for the printer column, and the reason next to it; ``before`` is the word of this attempt so far.

    An attempt never goes back a step: a job whose pods were all ready is Running until it ends, is suspended or starts
    again, though a pod that completes is not ready in its last second; the reason says what is the matter.
    """
    word, reason = _state_now(desired, started=started)
    reached = State(before) if before in _STEPS else None
    if reached is not None and word in _STEPS:
        word = max(word, reached, key=_STEPS.index)
    return word, reason


def _state_now(desired: DesiredConditions, *, started: bool) -> tuple[State, Reason]:
    invalid = desired.invalid.status == "True"
    reason = desired.invalid.reason if invalid else desired.pods_ready.reason
    if desired.complete.status == "True":
        return State.SUCCEEDED, desired.complete.reason
    if desired.failed.status == "True":
        return State.FAILED, desired.failed.reason
    if desired.suspended.status == "True":
        return State.SUSPENDED, desired.suspended.reason
    if desired.success_criteria_met.status == "True":
        return State.RUNNING, desired.pods_ready.reason
    if desired.failure_target.status == "True" and started:
        return State.STARTING, desired.pods_ready.reason
    if desired.restarting.status == "True":
        return State.RESTARTING, reason
    if desired.pods_ready.status == "True":
        return State.RUNNING, reason
    return State.STARTING if started and not invalid else State.PENDING, reason
