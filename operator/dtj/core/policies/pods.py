"""The pods of a job: they are checked, what they need is created, then they are, and what keeps them from starting is
reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dtj.api.names import Reason
from dtj.api.status import JobStatus
from dtj.core import blockers
from dtj.core.actions import Action, CheckPods, Create, Decision, Kind, Plan, RequeueAfter
from dtj.core.admission.workloads import gives_nodes
from dtj.core.conditions import DesiredConditions, blocked_pods, pods_ready
from dtj.core.context import REJECTION_TTL, JobContext
from dtj.core.manifests.metadata import claim
from dtj.core.pod_creation import FirstPods, creations
from dtj.core.pod_state import replica_of
from dtj.core.policies import (
    admission,
    clean_pod_policy,
    elastic_members,
    events,
    ignored_fields,
    job_service,
    network_policy,
    stall,
)
from dtj.core.policies.invalid import report_invalid
from dtj.core.policies.restart_wait import seconds_until_due
from dtj.core.replicas import Replica
from dtj.core.status import format_time, recorded_completions
from dtj.core.status_update import counted, obstructed, write
from dtj.core.validity import Problem

_A_MOMENT: Final = 1.0
"""Until a deletion that is called for in this pass is seen, in seconds."""


def run(context: JobContext) -> Decision:
    """Create the pods that are missing and whose time has come, and record how all of them are."""
    held = _held(context)
    wanted = [replica for replica in context.missing if replica not in held]
    first = (check_template(context) or _fit_gang(context, wanted)) if wanted else None
    if first is not None:
        return first
    starting = context.job.status.start_time is None
    status = _status(context, wanted)
    ready, stalled = pods_ready(context, status), stall.condition(context)
    if ready.status == "True":
        ready_time = status.ready_time or format_time(context.now)
        status = status.model_copy(update={"ready_time": ready_time, "ready_attempt": context.attempt})
    recorded = write(context, status, DesiredConditions(pods_ready=ready, progress_stalled=stalled))
    if starting:
        recorded = recorded.then(*ignored_fields.told(context))
    # The others know that a surplus pod is no member before it is deleted.
    created = (
        *elastic_members.tell(context),
        *_stop_outdated(context),
        *_before_pods(context),
        *creations(context, wanted),
    )
    # How many replicas the pods of an attempt know of is recorded before the first of them exists; and what keeps being
    # refused, with the pods that are ready all the same, before it is tried again.
    first_of_all = not context.current or context.observed.obstacle
    made = recorded.then(*created) if first_of_all else recorded.after(*created)
    changed = recorded.status is not None
    return made.then(
        *clean_pod_policy.delete_outdated(context),
        *events.of_creations(context, wanted),
        *(events.of_changes(context, ready, stalled) if changed else ()),
        *_look_again(context, held.values()),
    )


def _held(context: JobContext) -> dict[Replica, float]:
    """The missing replicas whose pods have to wait, and for how many seconds."""
    occupied = _seconds_until_nodes_are_free(context)
    if occupied > 0:
        return dict.fromkeys(context.missing, occupied)
    return {replica: wait for replica in context.missing if (wait := seconds_until_due(context, replica)) > 0}


def _seconds_until_nodes_are_free(context: JobContext) -> float:
    """How long to wait for pods of an earlier attempt that are on nodes which Kueue gave them; 0 if there are none.

    Kueue counts a pod until it has ended. Two pods of one rank make it ignore the ranks of all. It does not matter
    any more when the grace period is over: the node may be lost.
    """
    if context.gang_object is None or not gives_nodes(context.gang_object):
        return 0.0
    older = [pod for pod in context.own if not context.is_current(pod) and not pod.all_containers_ended]
    waits = (_A_MOMENT if pod.deletion_due is None else context.seconds_until(pod.deletion_due) for pod in older)
    return max(waits, default=0.0)


def _look_again(context: JobContext, waits: Iterable[float]) -> Iterator[RequeueAfter]:
    """When the next pod may be created, and when pods that are too young to be named as blocked are not any more."""
    named = blockers.seconds_until_named(blocked_pods(context), context.now)
    return (RequeueAfter(wait) for wait in (named, min(waits, default=None)) if wait is not None)


def _fit_gang(context: JobContext, wanted: list[Replica]) -> Decision | None:
    """Make the PodGroup or Workload fit first, if new pods join it."""
    stale = context.gang_object
    if stale is None or context.replaced_alone.issuperset(wanted):
        return None
    fits = not stale.terminating and stale.size == context.group(stale.api).size
    return None if fits else obstructed(context).then(*admission.fit(context))


def _status(context: JobContext, wanted: list[Replica]) -> JobStatus:
    """The status once these pods are created; the job starts if it has not yet."""
    status = counted(context, starting=frozenset(wanted))
    if status.start_time is not None:
        return status
    began = {"start_time": format_time(context.now), "attempt": context.attempt, "gang": admission.name(context)}
    return status.model_copy(update=began)


def check_template(context: JobContext) -> Decision | None:
    """Ask the API server before pods are created: does it take one of each role? Its words go into the status.

    If the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it. A job
    that has started does not become invalid: what is refused then is reported when its pod is created.
    """
    verdict = context.template_verdict
    if verdict is None or (verdict.wants_restricted and not verdict.restricted):
        restricted = context.observed.platform.restricted or verdict is not None
        check = CheckPods(context.job.generation, FirstPods(context, restricted), restricted)
        return obstructed(context).then(check)
    if not verdict.errors or context.own or context.job.status.start_time is not None:
        return None
    found = (Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors)
    again = context.seconds_until(verdict.at + REJECTION_TTL)
    return report_invalid(context, found).then(RequeueAfter(again))


def _before_pods(context: JobContext) -> tuple[Action, ...]:
    """NetworkPolicy, claim, ConfigMap, Service and gang, in this order, before the pods that need them."""
    return (
        *network_policy.before_pods(context),
        *_checkpoint_claim(context),
        *job_service.before_pods(context),
        *admission.before_pods(context),
    )


def _checkpoint_claim(context: JobContext) -> tuple[Create, ...]:
    """Create the claim if the job asks for one and it is not there. It goes with the job alone."""
    wanted = claim(context.job, context.spec)
    return (Create(Kind.CLAIM, wanted),) if wanted is not None and context.observed.claim is None else ()


def _stop_outdated(context: JobContext) -> Plan:
    """What still runs of older incarnations, and of replicas that the status records as completed."""
    recorded = recorded_completions(context.job.status) if not clean_pod_policy.keeps_sidecars(context) else ()
    return clean_pod_policy.stop(
        context,
        (
            pod
            for pod in context.own
            if not context.is_current(pod) or (pod.main_container_ended and replica_of(pod) in recorded)
        ),
    )
