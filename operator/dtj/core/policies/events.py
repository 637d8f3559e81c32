"""The events of a job whose pods are created: what is created and why, and what its status did not say before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dtj.api.json import dig, fields_of, objects, text
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang, RestartPolicy
from dtj.core import blockers
from dtj.core.actions import Emit
from dtj.core.conditions import DesiredCondition, admitted_workers, failing_beside
from dtj.core.context import JobContext
from dtj.core.policies import straggler
from dtj.core.replicas import Replica


def of_creations(context: JobContext, created: list[Replica]) -> Iterator[Emit]:
    """That the pods of these replicas are created: first ones, or again."""
    if context.observed.refusal is not None or not created:
        return
    starting = context.job.status.start_time is None
    if context.current and not starting:
        yield from _of_single_pods(context, created)
        return
    warnings = tuple(_warnings(context)) if starting else ()
    if starting and not warnings:
        yield from _of_resumption(context)
    counts = [f"{context.spec.replicas(role)} {role}" for role in context.spec.roles()]
    roles = ", ".join([*counts, f"{context.spec.spares} spare"] if context.spec.spares else counts)
    which = f" for attempt {context.attempt}" if context.attempt > 1 else ""
    yield Emit("Normal", Reason.PODS_CREATED, f"created {len(created)} pods{which} ({roles})")
    yield from warnings


def _of_single_pods(context: JobContext, created: list[Replica]) -> Iterator[Emit]:
    """Pods of an attempt that runs. Those that come back alone were told of when they were lost."""
    first = [replica for replica in created if replica not in context.replaced_alone]
    new = sum(replica in context.outsiders for replica in first)
    if new:
        yield Emit("Normal", Reason.PODS_CREATED, f"created {new} pods, which join when they are ready")
    elif first:
        yield Emit("Warning", Reason.REPLICA_LOST, f"created {len(first)} pods again that were gone")


def _of_resumption(context: JobContext) -> Iterator[Emit]:
    if not context.job.status.is_true(Condition.SUSPENDED):
        return
    if context.gang is not None and context.gang.gang is Gang.KUEUE:
        some = f" with {admitted_workers(context)}" if context.withheld else ""
        yield Emit("Normal", Reason.ADMITTED, f"Kueue has admitted the job{some}")
    else:
        yield Emit("Normal", Reason.RESUMED, f"resumed as attempt {context.attempt}")


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


def of_changes(context: JobContext, ready: DesiredCondition, stalled: DesiredCondition) -> Iterator[Emit]:
    """What the status says from now on, and did not before."""
    refusal = context.observed.refusal
    if refusal is not None:
        yield Emit("Warning", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
    before = context.job.status.condition(Condition.PROGRESS_STALLED)
    if stalled.status != "False" and (before is None or before.status != stalled.status):
        yield Emit("Warning", stalled.reason, stalled.message)
    yield from straggler.events(context)
    yield from _of_blockers(context, ready)


def _of_blockers(context: JobContext, ready: DesiredCondition) -> Iterator[Emit]:
    """A kind of blocker shows for the first time, or a pod that is ready has another container that fails."""
    before = context.job.status.condition(Condition.PODS_READY)
    if ready.reason in blockers.REASONS and (before is None or before.reason != ready.reason):
        yield Emit("Warning", ready.reason, ready.message)
    beside = failing_beside(context)
    if beside is None:
        return
    pod, blocker = beside
    if f"{pod.name}: " in ready.message and (before is None or f"{pod.name}: " not in before.message):
        yield Emit("Warning", blocker.reason, f"{pod.name}: {blocker.message}")
