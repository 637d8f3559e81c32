"""Which pods are deleted: by the clean-up policy at the end of a job, and ended ones of earlier attempts before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.spec import CleanPodPolicy
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, DeletePod, Plan, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.observed import Pod
from dtj.core.pod_failure import GRACEFUL_EXIT_CODES, ends_of
from dtj.core.pod_state import by_attempt, replica_of
from dtj.core.policies import sidecars
from dtj.core.policies.restart_wait import STUCK
from dtj.core.replicas import incarnation, pod_name
from dtj.core.status import true_since

MAX_KEPT_CAUSES: Final = 16
"""Pods that ended by an error of their own and are kept, the newest of them, however long ago that was."""


def to_stop(context: JobContext, *, all_that_run: bool = False) -> tuple[Pod, ...]:
    """Our pods that the clean-up policy wants gone and that are not gone yet.

    Under any policy it wants those gone that nothing but their sidecars keep running, or that wait to join the others:
    they do no work, and would hold what they hold forever. Of a TFJob that keeps its pods it keeps those with sidecars,
    once these have had their time, as Kubeflow's operator does.
    With ``all_that_run`` it wants those gone as well that run.
    """
    policy = _policy(context)
    if policy is CleanPodPolicy.ALL:
        return context.own
    running = all_that_run or policy is CleanPodPolicy.RUNNING
    wait = context.outsiders if context.job.spec is not None else ()
    kept = keeps_sidecars(context)

    def is_unwanted(pod: Pod) -> bool:
        if pod.main_container_ended:
            return pod.sidecars and (all_that_run or not kept or sidecars.seconds_left(pod, context.now) > 0)
        return running or replica_of(pod) in wait

    return tuple(filter(is_unwanted, context.own))


def has_stopped(context: JobContext) -> bool:
    """Whether nothing runs any more that the clean-up policy wants gone. Pods that have ended may still be there: for
    somebody's finalizer, or because a policy of the cluster protects them."""
    return all(pod.all_containers_ended for pod in to_stop(context))


def keeps_sidecars(context: JobContext) -> bool:
    """Whether a pod is kept, with its logs, whose sidecars go on after its main container."""
    return context.job.form.kubeflow_clean_up and _policy(context) is CleanPodPolicy.NONE


def left_running(context: JobContext) -> tuple[Pod, ...]:
    """The pods that go on after the end of the job, and hold what they hold, because its clean-up policy keeps them."""
    gone = {pod.uid for pod in to_stop(context)}
    return tuple(
        pod
        for pod in context.own
        if not (pod.uid in gone or pod.terminating or pod.all_containers_ended or sidecars.left_to_the_kubelet(pod))
    )


def _policy(context: JobContext) -> CleanPodPolicy:
    spec = context.job.spec
    if spec is None:
        return CleanPodPolicy.NONE
    asked = "clean_pod_policy" in spec.run_policy.model_fields_set
    return spec.run_policy.clean_pod_policy if asked else context.platform.clean_pod_policy


def stop_before_ttl(context: JobContext) -> Decision | None:
    """Stop the pods of a job that has ended, as its clean-up policy says."""
    actions = stop_pods(context, to_stop(context))
    return Decision(actions) if actions else None


def stop_pods(context: JobContext, gone: Collection[Pod]) -> Plan:
    """Delete ``gone``, which must stop; what is already on its way out needs no second call."""
    stopped = (DeletePod(pod.name, pod.uid) for pod in gone if pod.all_containers_ended and not pod.terminating)
    return (*stopped, *stop(context, gone))


def stop(context: JobContext, pods: Iterable[Pod]) -> Plan:
    """Delete those of ``pods`` that run, sidecars last; what is already on its way out needs no second call."""
    deletions: list[DeletePod] = []
    waits: list[float] = []
    for pod in pods:
        if pod.terminating or pod.all_containers_ended or sidecars.left_to_the_kubelet(pod):
            continue
        if left := sidecars.seconds_left(pod, context.now):
            waits.append(left)
        else:
            deletions.append(DeletePod(pod.name, pod.uid))
    return (*deletions, *((RequeueAfter(min(waits)),) if waits else ()))


def delete_outdated(context: JobContext) -> tuple[DeletePod, ...]:
    """Delete the ended pods of earlier attempts and incarnations that are kept no longer.

    Kept are those of the replicas' latest end, whatever it was, and the newest that ended by an error of their own:
    pods that saved and left, or were taken away, say nothing any more, and a job must not fill the cluster with them.
    """
    older = [pod for pod in context.own if pod.all_containers_ended and not context.is_current(pod)]
    if not context.job.form.keeps_ended_pods:
        # Of an index with two pods, Kubeflow's operator would touch neither, should the job be handed back to it.
        return tuple(DeletePod(pod.name, pod.uid) for pod in older if not pod.terminating)
    older = [pod for pod in older if not _is_previous(pod, context.job)]
    causes = sorted(_causes(older), key=_age, reverse=True)
    kept = {pod.uid for pod in causes[:MAX_KEPT_CAUSES]}
    return tuple(DeletePod(pod.name, pod.uid) for pod in older if pod.uid not in kept and not pod.terminating)


def _is_previous(pod: Pod, job: Job) -> bool:
    """Whether a pod is the one before its replica's latest."""
    replica = replica_of(pod)
    number = incarnation(job.status, replica) if replica is not None else 0
    return replica is not None and number > 0 and pod.name == pod_name(job, replica, number - 1)


def _causes(pods: Iterable[Pod]) -> Iterable[Pod]:
    for attempt in by_attempt(pods):
        yield from (e.pod for e in ends_of(attempt) if not e.by_infrastructure and not _left_on_request(e.pod))


def _left_on_request(pod: Pod) -> bool:
    """By its exit code: the pod that shows the request may be gone."""
    return pod.succeeded or (pod.termination is not None and pod.termination.exit_code in GRACEFUL_EXIT_CODES)


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.created_at or datetime.min.replace(tzinfo=UTC), pod.name


def seconds_until_given_up(pod: Pod, status: JobStatus, now: datetime) -> float | None:
    """Seconds until a job that ends waits no longer for a pod: it hangs, on a dead node most likely.

    Counted from when the outcome was recorded, by the operator's own clock; None where it is not recorded, or where
    the pod was not asked to stop.
    """
    since = true_since(status, Condition.SUCCESS_CRITERIA_MET) or true_since(status, Condition.FAILURE_TARGET)
    if since is None or pod.deletion_due is None or pod.deletion_requested_at is None:
        return None
    return (since + (pod.deletion_due - pod.deletion_requested_at) + STUCK - now).total_seconds()
