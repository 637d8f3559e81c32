"""The status that a job should have: counts, conditions and the one word that sums them up.

Conditions follow KEP-1623: known types are there from the first write on, a transition time moves only when
``status`` changes, and conditions of types that are not ours are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason, State
from dtj.api.spec import JobSpec, Role, as_role
from dtj.api.status import ConditionStatus, JobStatus, ReplicaStatus
from dtj.core.observed import Phase, Pod
from dtj.core.replicas import Replica, format_indexes, parse_indexes


def format_time(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Assertion:
    """What a condition should say."""

    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What each condition should say; the defaults are those of a job that has not begun."""

    pods_ready: Assertion = Assertion("False", Reason.WAITING_FOR_PODS)
    suspended: Assertion = Assertion("False", Reason.NOT_SUSPENDED)
    restarting: Assertion = Assertion("False", Reason.NOT_RESTARTING)
    stalled: Assertion = Assertion("False", Reason.NOT_STALLED)
    invalid: Assertion = Assertion("False", Reason.VALID)
    success_criteria_met: Assertion = Assertion("False", Reason.NOT_FINISHED)
    failure_target: Assertion = Assertion("False", Reason.NOT_FINISHED)
    complete: Assertion = Assertion("False", Reason.NOT_FINISHED)
    failed: Assertion = Assertion("False", Reason.NOT_FINISHED)

    def items(self) -> tuple[tuple[Condition, Assertion], ...]:
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
    current: tuple[ConditionStatus, ...], verdicts: Verdicts, *, generation: int, now: datetime
) -> tuple[ConditionStatus, ...]:
    """``current`` with our types set as ``verdicts`` say, in place; new ones at the end."""
    found = {condition.type: condition for condition in current}
    for kind, wanted in verdicts.items():
        before = found.get(kind)
        moved = before is None or before.status != wanted.status or not before.last_transition_time
        found[kind] = ConditionStatus(
            type=kind,
            status=wanted.status,
            reason=wanted.reason,
            message=wanted.message,
            last_transition_time=format_time(now) if moved or before is None else before.last_transition_time,
            observed_generation=generation,
        )
    return tuple(found.values())


def recorded_completions(status: JobStatus) -> frozenset[Replica]:
    """The replicas that ``status`` says have completed."""
    return frozenset(
        Replica(Role(role), index)
        for role, counts in status.replica_statuses.items()
        if as_role(role)
        for index in parse_indexes(counts.completed_indexes)
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
        statuses[str(role)] = ReplicaStatus(
            desired=spec.replicas(role),
            active=sum(not pod.ended and not pod.terminating for pod in own)
            + sum(replica.role is role for replica in starting),
            ready=sum(is_ready(pod) for pod in own),
            succeeded=len(indexes),
            failed=sum(pod.phase is Phase.FAILED for pod in own),
            completed_indexes=format_indexes(indexes),
            memory_increases=recorded[role].memory_increases if role in recorded else 0,
            restarts=recorded[role].restarts if role in recorded else {},
        )
    return statuses


def is_ready(pod: Pod) -> bool:
    """Whether a pod counts as ready: running, its probes passed, and not on its way out."""
    return pod.ready and not pod.ended and not pod.terminating


def ready_text(spec: JobSpec, counts: dict[str, ReplicaStatus]) -> str:
    """``3/4``: pods that are ready, of all that the job wants."""
    ready = sum(role.ready for role in counts.values())
    return f"{ready}/{sum(spec.replicas(role) for role in spec.roles())}"


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
    )


def state(verdicts: Verdicts, *, started: bool) -> tuple[State, Reason]:
    """The one word for the printer column, and the reason beside it."""
    if verdicts.complete.status == "True":
        return State.SUCCEEDED, verdicts.complete.reason
    if verdicts.failed.status == "True":
        return State.FAILED, verdicts.failed.reason
    if verdicts.invalid.status == "True":
        return State.PENDING, verdicts.invalid.reason
    if verdicts.suspended.status == "True":
        return State.SUSPENDED, verdicts.suspended.reason
    if "True" in (verdicts.success_criteria_met.status, verdicts.failure_target.status):
        return State.RUNNING, verdicts.pods_ready.reason
    if verdicts.restarting.status == "True":
        return State.RESTARTING, verdicts.pods_ready.reason
    if verdicts.pods_ready.status == "True" or not started:
        word = State.RUNNING if verdicts.pods_ready.status == "True" else State.PENDING
        return word, verdicts.pods_ready.reason
    return State.STARTING, verdicts.pods_ready.reason
