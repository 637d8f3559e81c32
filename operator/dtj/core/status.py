"""What the status of a job records: times, counts by role, and which changes of it may wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from dtj.api.job import parse_time
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.spec import JobSpec, Role, as_role
from dtj.api.status import JobStatus, ReplicaStatus
from dtj.core.messages import WAITING_IN_QUEUE
from dtj.core.observed import Phase, Pod
from dtj.core.outcome import CLOCKS_DIFFER
from dtj.core.replicas import Replica, format_indexes, parse_indexes


def format_time(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_deadline(moment: datetime) -> str:
    """The same for the end of a wait: the next whole second, so that the wait is not cut short."""
    whole = moment.replace(microsecond=0)
    return format_time(moment if moment == whole else whole + timedelta(seconds=1))


def true_since(status: JobStatus, kind: Condition) -> datetime | None:
    """Since when a condition is True; None if it is not, or does not say."""
    found = status.when_true(kind)
    return parse_time(found.last_transition_time) if found is not None else None


def time_after(begin: datetime | None, seconds: int | None) -> datetime | None:
    """``begin`` and this many seconds; None if either is None, or if that lies beyond all times."""
    if begin is None or seconds is None:
        return None
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:
        return None


def is_over(began: datetime, lasts: timedelta, now: datetime) -> bool:
    """Whether a time is over that began at a moment of our own clock; also where that lies ahead: the clock was set
    back, and nobody knows."""
    return not -CLOCKS_DIFFER <= now - began < lasts


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
    stopping: Collection[Pod] = (),
    spares: frozenset[Replica] = frozenset(),
    active_is_running: bool = False,
) -> dict[str, ReplicaStatus]:
    """Counts by role. ``starting`` are replicas whose pods this very plan creates: they count as active; ``stopping``
    are pods of any attempt that still hold what they hold. The pods of ``spares`` are not counted. With
    ``active_is_running``, as in Kubeflow, no pod is active that does not run yet.

    What was counted before (``recorded``) and is no number of pods is carried on.
    """
    statuses = {}
    for role in spec.roles():
        own = [pod for pod in pods if pod.role == role]
        indexes = [replica.index for replica in done if replica.role is role]
        up = {str(pod.index) for pod in own if is_ready(pod)}.union(map(str, indexes))
        own = [pod for pod in own if Replica(role, pod.index) not in spares]
        live = [pod for pod in own if not pod.main_container_ended and not pod.terminating]
        before = recorded.get(role, ReplicaStatus())
        statuses[str(role)] = ReplicaStatus(
            desired=spec.replicas(role),
            active=sum(pod.phase is Phase.RUNNING for pod in live)
            if active_is_running
            else len(live) + sum(replica.role is role for replica in starting - spares),
            ready=sum(is_ready(pod) for pod in own),
            terminating=sum(pod.role == role for pod in stopping),
            succeeded=len(indexes),
            failed=sum(pod.failed and not pod.terminating for pod in own),
            completed_indexes=format_indexes(indexes),
            memory_increases=before.memory_increases,
            restarts=before.restarts,
            replaced_indexes=before.replaced_indexes,
            restarting={index: due for index, due in before.restarting.items() if index not in up},
        )
    return statuses


def of_a_new_attempt(
    spec: JobSpec | None, recorded: dict[str, ReplicaStatus], stopping: Collection[Pod] = ()
) -> dict[str, ReplicaStatus]:
    """Counts by role before any pod of the next attempt exists: nobody has completed, or was replaced alone.

    A job whose manifest cannot be read still wants as many pods as it did. ``stopping`` are as in
    :func:`replica_statuses`.
    """
    if spec is None:
        desired = {role: before.desired for role, before in recorded.items()}
    else:
        desired = {str(role): spec.replicas(role) for role in spec.roles()}
    return {
        role: ReplicaStatus(
            desired=count,
            terminating=sum(pod.role == role for pod in stopping),
            memory_increases=before.memory_increases,
            restarts=before.restarts,
        )
        for role, count in desired.items()
        for before in (recorded.get(role, ReplicaStatus()),)
    }


def all_together(counts: dict[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """``counts`` of replicas that all start at the same time: none of them comes back alone."""
    return {role: count.model_copy(update={"replaced_indexes": "", "restarting": {}}) for role, count in counts.items()}


def is_ready(pod: Pod) -> bool:
    """Whether a pod counts as ready: running, its probes passed, and not on its way out."""
    return pod.ready and not pod.main_container_ended and not pod.terminating


def ready_text(counts: dict[str, ReplicaStatus]) -> str:
    """``3/4``: pods that are ready, of all that the job wants."""
    return f"{sum(role.ready for role in counts.values())}/{sum(role.desired for role in counts.values())}"


def without_unreported_progress(status: JobStatus) -> JobStatus:
    """``status`` of a job whose pods do not run: what they wait for is no progress. What they reported stays."""
    is_reported = status.progress is not None and status.progress.reported
    return status if is_reported else status.model_copy(update={"progress": None})


def differs_only_in_counts(before: JobStatus, after: JobStatus) -> bool:
    """Whether nothing but numbers of pods changed: such a change may wait for the next to come."""
    return _without_counts(before) == _without_counts(after)


def differs_only_in_words(before: JobStatus, after: JobStatus) -> bool:
    """Whether nothing but messages of conditions changed."""
    return _without_messages(before) == _without_messages(after)


def is_first_explanation(before: JobStatus, after: JobStatus) -> bool:
    """Whether it is known now why a job waits that only waited before."""
    waited, waits = (
        any(condition.message == WAITING_IN_QUEUE for condition in status.conditions) for status in (before, after)
    )
    return waited and not waits


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
    passing: dict[str, object] = dict.fromkeys(("active", "ready", "succeeded", "failed"), 0)
    passing["terminating"] = min(counts.terminating, 1)  # that the last of them is gone is what Kueue waits for
    return counts.model_copy(update=passing)
