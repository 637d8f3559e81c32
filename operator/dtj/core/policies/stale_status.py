"""Whether what is known of a job is older than what is seen of its pods.

Numbers of attempts and incarnations are recorded before the pods that bear them are created. A pod with a higher number
than the status knows means that another operator leads by now, or that the job's watch lags behind that of its pods:
what such a record asks for would end pods that are newer and live.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from dtj.api.job import Job
from dtj.core.actions import Decision, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.observed import Pod
from dtj.core.pod_state import replica_of
from dtj.core.policies.attempt import begin_attempt
from dtj.core.replicas import incarnation, number_of

PATIENCE: Final = timedelta(minutes=5)
"""For how long pods that the status does not know of are left alone: jobs are listed again in that time."""


def wait_for_status(context: JobContext) -> Decision | None:
    """Touch nothing until the job's own status has come.

    One that does not come in time was lost. All start again then, under a number above those of the pods; recording
    that comes first, and fails if what we know is old after all.
    """
    job, now = context.job, context.now
    newer = newer_pods(context)
    if not newer:
        return None
    youngest = max((pod.created_at for pod in newer if pod.created_at is not None), default=now)
    wait = min(youngest + PATIENCE - now, PATIENCE).total_seconds()
    if wait > 0:
        return Decision.of(RequeueAfter(wait))
    latest = max(max(pod.attempt, 1 + _number(pod, job)) for pod in newer)
    known = job.status.model_copy(update={"attempt": latest})
    return begin_attempt(context, "Warning", f"the job's status does not know of pod {newer[0].name}", known)


def newer_pods(context: JobContext) -> tuple[Pod, ...]:
    """The pods of the job that its status does not know of."""
    return tuple(pod for pod in context.own if _is_newer(pod, context.job))


def _is_newer(pod: Pod, job: Job) -> bool:
    """Whether a pod is of an attempt or incarnation that the job's status does not know of."""
    replica = replica_of(pod)
    if replica is None or number_of(pod.name, job, replica) is None:
        return False
    return pod.attempt > job.attempt or _number(pod, job) > incarnation(job.status, replica)


def _number(pod: Pod, job: Job) -> int:
    """The incarnation of a pod, by its name."""
    replica = replica_of(pod)
    return (number_of(pod.name, job, replica) or 0) if replica is not None else 0
