"""The pods of a job: they are checked, what they need is created, then they are, and what keeps them from starting is
reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dtj.api.json import dig, fields_of, objects, text
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang, RestartPolicy
from dtj.core import blockers
from dtj.core.actions import Action, CheckPods, Create, Decision, Emit, Kind, Plan, RequeueAfter
from dtj.core.conditions import (
    DesiredCondition,
    DesiredConditions,
    admitted_workers,
    blocked_pods,
    failing_beside,
    pods_ready,
)
from dtj.core.context import REJECTION_TTL, JobContext
from dtj.core.manifests.metadata import claim
from dtj.core.pod_creation import FirstPods, creations
from dtj.core.pod_state import replica_of
from dtj.core.policies import (
    admission,
    clean_pod_policy,
    elastic_members,
    ignored_fields,
    network_policy,
    service,
    stall,
    straggler,
)
from dtj.core.policies.invalid import report_invalid
from dtj.core.policies.restart_wait import seconds_until_due
from dtj.core.replicas import Replica
from dtj.core.status import format_time, recorded_completions
from dtj.core.status_update import counted, obstructed, write
from dtj.core.validity import Problem


def run(context: JobContext) -> Decision:
    """Create the pods that are missing and whose time has come, and record how all of them are."""
    held = {replica: wait for replica in context.missing if (wait := seconds_until_due(context, replica)) > 0}
    occupied = context.seconds_until_nodes_are_free
    if occupied > 0:
        held = dict.fromkeys(context.missing, occupied)
    wanted = [replica for replica in context.missing if replica not in held]
    check = check_template(context) if wanted else None
    if check is not None:
        return check
    stale = context.gang_object
    of_gang = [replica for replica in wanted if not context.replaced_alone(replica)]
    if of_gang and stale is not None and (stale.terminating or stale.size != context.gang_size):
        return Decision.of(*admission.fit(context))
    starting = context.job.status.start_time is None
    status = counted(context, starting=frozenset(wanted))
    if starting:
        began = {"start_time": format_time(context.now), "attempt": context.attempt, "gang": admission.name(context)}
        status = status.model_copy(update=began)
    ready = pods_ready(context, status)
    if ready.status == "True":
        ready_time = status.ready_time or format_time(context.now)
        status = status.model_copy(update={"ready_time": ready_time, "ready_attempt": context.attempt})
    stalled = stall.condition(context)
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
    # How many replicas the pods of an attempt know of is recorded before the first of them exists.
    made = recorded.after(*created) if context.current else recorded.then(*created)
    changed = recorded.status is not None
    return made.then(
        *clean_pod_policy.delete_outdated(context),
        *_events(context, wanted, starting=starting, changed=changed),
        *_stall_event(context, stalled, changed=changed),
        *(straggler.events(context) if changed else ()),
        *_blocked_events(context, ready, changed=changed),
        *((RequeueAfter(min(held.values())),) if held else ()),
    )


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
        *service.before_pods(context),
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


def _events(context: JobContext, created: list[Replica], *, starting: bool, changed: bool) -> tuple[Emit, ...]:
    refusal = context.observed.refusal
    if refusal is not None:
        message = f"{refusal.name}: {refusal.message}"
        return (Emit("Warning", Reason.POD_CREATION_FAILED, message),) if changed else ()
    if not created:
        return ()
    if not starting and context.current:
        first = [replica for replica in created if not context.replaced_alone(replica)]
        new = sum(replica in context.outsiders for replica in first)
        if new:
            return (Emit("Normal", Reason.PODS_CREATED, f"created {new} pods, which join when they are ready"),)
        again = f"created {len(first)} pods again that were gone"
        return (Emit("Warning", Reason.REPLICA_LOST, again),) if first else ()
    counts = [f"{context.spec.replicas(role)} {role}" for role in context.spec.roles()]
    roles = ", ".join([*counts, f"{context.spec.spares} spare"] if context.spec.spares else counts)
    which = f" for attempt {context.attempt}" if context.attempt > 1 else ""
    news = Emit("Normal", Reason.PODS_CREATED, f"created {len(created)} pods{which} ({roles})")
    if starting and (warnings := tuple(_warnings(context))):
        return (news, *warnings)
    if starting and context.job.status.is_true(Condition.SUSPENDED):
        if context.gang is not None and context.gang.gang is Gang.KUEUE:
            some = f" with {admitted_workers(context)}" if context.withheld else ""
            return (Emit("Normal", Reason.ADMITTED, f"Kueue has admitted the job{some}"), news)
        return (Emit("Normal", Reason.RESUMED, f"resumed as attempt {context.attempt}"), news)
    return (news,)


_OVERWRITTEN: Final = "Restart policy in pod template will be overwritten by restart policy in replica spec"
"""In the words of Kubeflow's operator (``createNewPod`` in ``pkg/controller.v1/common/pod.go``)."""


def _warnings(context: JobContext) -> Iterator[Emit]:
    """What the users of a TFJob should know of it when it starts."""
    form = context.job.form
    if not form.kubelet_restarts:
        return
    roles = fields_of(context.job.raw_spec.get(form.roles_field)).values()
    if any(dig(role, "template", "spec", "restartPolicy") for role in roles):
        yield Emit("Warning", Reason.TEMPLATE_RESTART_POLICY, _OVERWRITTEN)
    if lost := _lost_directories(context):
        yield Emit("Warning", Reason.EMPTY_DIR_IS_LOST, lost)


def _lost_directories(context: JobContext) -> str:
    """What is lost at a restart: Kubeflow's operator leaves it to the kubelet, in the same pod. Empty if nothing is."""
    for role in context.spec.roles():
        given = context.spec.replica_specs[role]
        if given is None or given.restart_policy is not RestartPolicy.ON_FAILURE:
            continue
        pod_spec = dig(given.template, "spec")
        names = [text(each.get("name")) for each in objects(dig(pod_spec, "volumes")) if "emptyDir" in each]
        if names:
            return f"emptyDir {names[0]} of {role} is empty after a restart, which is a new pod: use another volume"
    return ""


def _stall_event(context: JobContext, stalled: DesiredCondition, *, changed: bool) -> Iterable[Emit]:
    before = context.job.status.condition(Condition.PROGRESS_STALLED)
    known = before is not None and before.status == stalled.status
    if stalled.status == "False" or not changed or known:
        return ()
    return (Emit("Warning", stalled.reason, stalled.message),)


def _blocked_events(context: JobContext, ready: DesiredCondition, *, changed: bool) -> tuple[Action, ...]:
    """An event when a kind of blocker first shows, or a pod that is ready has another container that fails; and another
    look at pods too young to be named."""
    before = context.job.status.condition(Condition.PODS_READY)
    new = ready.reason in blockers.REASONS and (before is None or before.reason != ready.reason)
    beside = failing_beside(context)
    ails = f"{beside[0].name}: " if beside is not None else ""
    fails = beside is not None and ails in ready.message and (before is None or ails not in before.message)
    wait = blockers.seconds_until_named(blocked_pods(context), context.now)
    return (
        *((Emit("Warning", ready.reason, ready.message),) if new and changed else ()),
        *((Emit("Warning", beside[1].reason, ails + beside[1].message),) if beside and fails and changed else ()),
        *((RequeueAfter(wait),) if wait is not None else ()),
    )
