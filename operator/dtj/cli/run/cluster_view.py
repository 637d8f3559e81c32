"""A job of a cluster as the screens of a local run show it: status and pods go in, plain values come out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import JobSpec
from dtj.api.status import Progress
from dtj.core.observed import Pod
from dtj.core.pod_state import replica_of
from dtj.core.replicas import Replica, deciding_replica, replicas
from dtj.local.view import RunView, run_view

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)

_NO_NEWS: Final = frozenset(
    {Reason.PENDING, Reason.WAITING_FOR_PODS, Reason.ALL_PODS_READY, Reason.STOPPING_PODS, Reason.JOB_FINISHED}
)
"""Reasons for which pods are ready or not that the replicas' own states tell as well."""


def cluster_view(job: Job, spec: JobSpec, pods: Iterable[Pod], *, now: datetime) -> RunView:
    """The job at ``now``. Of the pods of a replica the newest counts."""
    newest: dict[Replica, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.attempt, pod.created_at or _BEGINNING)):
        replica = replica_of(pod)
        if replica is not None:
            newest[replica] = pod
    progress = {replica: _silent_progress(newest.get(replica)) for replica in replicas(spec)}
    decider = deciding_replica(spec)
    if decider is not None and job.status.progress is not None and job.status.progress.reported:
        progress[decider] = job.status.progress
    started = [replica.hostname for replica in replicas(spec)] if job.status.terminal else ()
    return run_view(job, spec, pods=newest, progress=progress, elapsed=lasted(job, now=now), started=started)


def lasted(job: Job, *, now: datetime) -> float:
    """Seconds from the job's creation to its end, or to ``now``; clocks of two machines may differ a little."""
    end = parse_time(job.status.completion_time) or now
    return max(0.0, (end - job.created_at).total_seconds()) if job.created_at is not None else 0.0


def news(before: Job, after: Job) -> tuple[str, ...]:
    """What happened to the job between two looks at it that its replicas' states do not tell, a line each."""
    kinds = [Condition.SUSPENDED, Condition.RESTARTING, Condition.PROGRESS_STALLED]
    if not any(after.status.is_true(kind) for kind in kinds):  # else that is why not all pods are ready
        kinds.append(Condition.PODS_READY)
    changed = (kind for kind in kinds if _reason(before, kind) != _reason(after, kind))
    return tuple(message for kind in changed if (message := _message(after, kind)))


def _message(job: Job, kind: Condition) -> str:
    """The text of a condition for a reader; empty if there is nothing to show."""
    condition = job.status.condition(kind)
    if condition is None:
        return ""
    if kind is Condition.PODS_READY:
        telling = condition.status != "True" and condition.reason not in _NO_NEWS
    else:
        telling = condition.status == "True"
    if not telling:
        return ""
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _reason(job: Job, kind: Condition) -> tuple[str, str] | None:
    """What a condition says in one word; its message may change all the time."""
    condition = job.status.condition(kind)
    return (condition.status, condition.reason) if condition is not None else None


def _silent_progress(pod: Pod | None) -> Progress:
    """What is known of a replica that says nothing here: whether its pod is ready."""
    return Progress() if pod is not None and pod.ready else Progress(phase="Gate")
