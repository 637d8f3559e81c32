"""The status that a job should have: counts, conditions and the one word that sums them up.

Conditions follow KEP-1623: known types are there from the first write on, a transition time moves only when
``status`` changes, and conditions of types that are not ours are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason, State
from dtj.api.spec import JobSpec, Role, as_role
from dtj.api.status import ConditionStatus, JobStatus, ReplicaStatus
from dtj.core.messages import cut
from dtj.core.observed import Pod
from dtj.core.replicas import Replica, format_indexes, parse_indexes


def format_time(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_deadline(moment: datetime) -> str:
    """The same for the end of a wait: the next whole second, so that the wait is not cut short."""
    whole = moment.replace(microsecond=0)
    return format_time(moment if moment == whole else whole + timedelta(seconds=1))


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
    stalled: DesiredCondition = DesiredCondition("False", Reason.NOT_STALLED)
    invalid: DesiredCondition = DesiredCondition("False", Reason.VALID)
    success_criteria_met: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    failure_target: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    complete: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)
    failed: DesiredCondition = DesiredCondition("False", Reason.NOT_FINISHED)

    def items(self) -> tuple[tuple[Condition, DesiredCondition], ...]:
        return (
            (Condition.PODS_READY, self.pods_ready),
            (Condition.SUSPENDED, self.suspended),
            (Condition.RESTARTING, self.restarting),
            (Condition.STALLED, self.stalled),
            (Condition.INVALID, self.invalid),
            (Condition.SUCCESS_CRITERIA_MET, self.success_criteria_met),
            (Condition.FAILURE_TARGET, self.failure_target),
            (Condition.COMPLETE, self.complete),
            (Condition.FAILED, self.failed),
        )


def conditions(
    current: tuple[ConditionStatus, ...], desired: DesiredConditions, *, generation: int, now: datetime
) -> tuple[ConditionStatus, ...]:
    """``current`` with our types set as ``desired`` say, in place; new ones at the end."""
    found = {condition.type: condition for condition in current}
    for kind, wanted in desired.items():
        before = found.get(kind)
        moved = before is None or before.status != wanted.status or not before.last_transition_time
        found[kind] = ConditionStatus(
            type=kind,
            status=wanted.status,
            reason=wanted.reason,
            message=cut(wanted.message),
            last_transition_time=format_time(now) if moved or before is None else before.last_transition_time,
            observed_generation=generation,
        )
    return tuple(found.values())


def recorded_completions(status: JobStatus) -> frozenset[Replica]:
    """The replicas that ``status`` says have completed."""
    return _indexed((role, counts.completed_indexes) for role, counts in status.replica_statuses.items())


def recorded_replacements(status: JobStatus) -> frozenset[Replica]:
    """The replicas that ``status`` says were replaced alone in this attempt."""
    return _indexed((role, counts.replaced_indexes) for role, counts in status.replica_statuses.items())


def _indexed(ranges: Iterable[tuple[str, str]]) -> frozenset[Replica]:
    return frozenset(
        Replica(Role(role), index) for role, text in ranges if as_role(role) for index in parse_indexes(text)
    )


def replica_statuses(
    spec: JobSpec,
    pods: tuple[Pod, ...],
    *,
    done: frozenset[Replica],
    starting: frozenset[Replica],
    recorded: dict[str, ReplicaStatus],
) -> dict[str, ReplicaStatus]:
    """Counts by role. ``starting`` are replicas whose pods this very plan creates: they count as active.

    What was counted before (``recorded``) and is no number of pods is carried on.
    """
    statuses = {}
    for role in spec.roles():
        own = [pod for pod in pods if pod.role == role]
        indexes = [replica.index for replica in done if replica.role is role]
        up = {str(pod.index) for pod in own if is_ready(pod)}.union(map(str, indexes))
        before = recorded.get(role, ReplicaStatus())
        statuses[str(role)] = ReplicaStatus(
            desired=spec.replicas(role),
            active=sum(not pod.ended and not pod.terminating for pod in own)
            + sum(replica.role is role for replica in starting),
            ready=sum(is_ready(pod) for pod in own),
            succeeded=len(indexes),
            failed=sum(pod.failed and not pod.terminating for pod in own),
            completed_indexes=format_indexes(indexes),
            memory_increases=before.memory_increases,
            restarts=before.restarts,
            replaced_indexes=before.replaced_indexes,
            restarting={index: due for index, due in before.restarting.items() if index not in up},
        )
    return statuses


def of_a_new_attempt(spec: JobSpec, recorded: dict[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """Counts by role before any pod of the next attempt exists: nobody has completed, or was replaced alone."""
    return all_together(replica_statuses(spec, (), done=frozenset(), starting=frozenset(), recorded=recorded))


def all_together(counts: dict[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """``counts`` of replicas that all start at the same time: none of them comes back alone."""
    return {role: count.model_copy(update={"replaced_indexes": "", "restarting": {}}) for role, count in counts.items()}


def is_ready(pod: Pod) -> bool:
    """Whether a pod counts as ready: running, its probes passed, and not on its way out."""
    return pod.ready and not pod.ended and not pod.terminating


def ready_text(spec: JobSpec, counts: dict[str, ReplicaStatus]) -> str:
    """``3/4``: pods that are ready, of all that the job wants."""
    ready = sum(role.ready for role in counts.values())
    return f"{ready}/{sum(spec.replicas(role) for role in spec.roles())}"


def without_a_guess(status: JobStatus) -> JobStatus:
    """``status`` of a job whose pods do not run: what they wait for is no progress any more. What they said stays."""
    said = status.progress is not None and status.progress.reported
    return status if said else status.model_copy(update={"progress": None})


def differs_only_in_counts(before: JobStatus, after: JobStatus) -> bool:
    """Whether nothing but numbers of pods changed: such a change may wait for the next to come."""
    return _without_counts(before) == _without_counts(after)


def differs_only_in_words(before: JobStatus, after: JobStatus) -> bool:
    """Whether nothing but messages of conditions changed."""
    return _without_messages(before) == _without_messages(after)


def _without_messages(status: JobStatus) -> JobStatus:
    return status.model_copy(
        update={"conditions": tuple(c.model_copy(update={"message": ""}) for c in status.conditions)}
    )


def _without_counts(status: JobStatus) -> JsonObject:
    timeless = _without_messages(status).model_copy(
        update={
            "ready": "",
            "progress": None,
            "replica_statuses": {role: _durable_counts(counts) for role, counts in status.replica_statuses.items()},
        }
    )
    return timeless.to_object()


def _durable_counts(counts: ReplicaStatus) -> ReplicaStatus:
    """``counts`` with what must be durable alone: completed replicas are more than a number."""
    return ReplicaStatus(
        desired=counts.desired,
        completed_indexes=counts.completed_indexes,
        memory_increases=counts.memory_increases,
        restarts=counts.restarts,
        replaced_indexes=counts.replaced_indexes,
        restarting=counts.restarting,
    )


_STEPS = (State.PENDING, State.STARTING, State.RUNNING)
"""The steps of an attempt, in order."""


def state(desired: DesiredConditions, *, started: bool, before: str = "") -> tuple[State, Reason]:
    """The one word for the printer column, and the reason beside it; ``before`` is the word of this attempt so far.

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
    if "True" in (desired.success_criteria_met.status, desired.failure_target.status):
        return State.RUNNING, desired.pods_ready.reason
    if desired.restarting.status == "True":
        return State.RESTARTING, reason
    if desired.pods_ready.status == "True":
        return State.RUNNING, reason
    return State.STARTING if started and not invalid else State.PENDING, reason
