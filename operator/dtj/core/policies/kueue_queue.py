"""Kueue decides when a job runs, and when it gives its quota back."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from dtj.api.json import JsonObject
from dtj.api.kueue import ADMISSION_GATE, gates, max_execution_seconds
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Action, Decision, Delete, Emit, ReadClusterQueue, ReadFlavors, RequeueAfter, Update
from dtj.core.admission import workloads
from dtj.core.conditions import DesiredCondition, DesiredConditions, pods_ready
from dtj.core.context import JobContext
from dtj.core.messages import MAX_NOTE, cut
from dtj.core.observed import Flavor, GangApi, GangObject
from dtj.core.policies import kueue_priorities
from dtj.core.policies.admission import new_gang
from dtj.core.policies.kueue_workload_status import fits
from dtj.core.policies.name_collision import report_collision
from dtj.core.policies.pods import check_template
from dtj.core.policies.suspend import stop_all
from dtj.core.status import is_over
from dtj.core.status_update import counted, obstructed, write

READ_TTL: Final = timedelta(seconds=60)
"""For how long holds what a ResourceFlavor or a ClusterQueue said. Who needs it asks then again."""

_OTHER_PODS: Final = "the Workload asks for other pods than the job needs by now: all stop, and the job waits again"


def hold_until_admitted(context: JobContext) -> Decision | None:
    """Hold the job while it is queued, and stop it when Kueue wants its quota back; None once it may run."""
    api, workload = context.gang, context.gang_object
    if api is None or api.gang is not Gang.KUEUE:
        return None
    same = workload is not None and fits(context, workload)
    if workload is not None and same and workloads.admitted(workload):
        return _learn_flavors(context, workload)
    if workload is None and not context.has_something_to_stop:
        held = report_collision(context) or check_template(context) or kueue_priorities.learn(context)
        if held is not None:
            return held
    asked = ask_why(context)
    if asked is not None:
        return asked
    why = queued_because(context, workload if workload is not None and (same or not workload.active) else None)
    stopping = stop_all(context, why)
    if context.has_something_to_stop and workload is not None and not same:
        return stopping.if_written(Emit("Normal", Reason.QUEUED, _OTHER_PODS))
    if context.has_something_to_stop:
        return stopping
    return stopping.then(*into_queue(context, api, same=same))


def take_back(context: JobContext) -> Decision | None:
    """Stop a job that runs and cannot go on as it is written by now, when Kueue wants its quota back."""
    api, workload = context.gang, context.gang_object
    if not context.has_something_to_stop or not context.problems or api is None or api.gang is not Gang.KUEUE:
        return None
    if workload is not None and workloads.admitted(workload):
        return None
    return stop_all(context, queued_because(context, workload))


def queued_because(context: JobContext, workload: GangObject | None) -> DesiredCondition:
    """The condition Suspended of a job that waits: in Kueue's words, or because its priority cannot be read."""
    known = context.observed.cluster_queues.get(context.inactive_queue)
    words = workloads.words(workload, inactive=known.words if known is not None else "")
    return DesiredCondition("True", Reason.QUEUED, kueue_priorities.refused(context) or words)


def ask_why(context: JobContext) -> Decision | None:
    """Kueue says of a ClusterQueue that it is inactive; the queue itself says why."""
    name = context.inactive_queue
    known = context.observed.cluster_queues.get(name)
    if not name or (known is not None and not is_over(known.at, READ_TTL, context.now)):
        return None
    return Decision.of(ReadClusterQueue(name))


def into_queue(context: JobContext, api: GangApi, *, same: bool) -> tuple[Action, ...]:
    """With no pod left: make the Workload, or replace one that does not fit (``same`` is whether it does). Its quota is
    given back next to that. What keeps a ClusterQueue inactive may change, and no event reports that.
    """
    again = (RequeueAfter(READ_TTL.total_seconds()),) if context.inactive_queue else ()
    return (*_have_workload(context, api, same=same), *again)


def _have_workload(context: JobContext, api: GangApi, *, same: bool) -> tuple[Action, ...]:
    """A Workload that others made is theirs to make and to delete."""
    workload = context.gang_object
    made_by_others = bool(context.job.prebuilt_workload)
    if workload is None:
        return () if made_by_others else (kueue_priorities.unread(context) or new_gang(context, api),)
    if workload.terminating or made_by_others:
        return ()
    if same and workload.queue == (context.spec.scheduling.queue or "") and not _adds_gate(context, workload):
        return (*_follow_job(context, workload), *kueue_priorities.follow_label(context, workload))
    if not workload.active:
        return ()  # another one would be active: who deactivated it says when the job goes on
    return (Delete(workload.api, workload.name, workload.uid),)


def _adds_gate(context: JobContext, workload: GangObject) -> bool:
    """Whether the job has an admission gate that its Workload lacks. Kueue refuses to add one."""
    gate = context.job.annotations.get(ADMISSION_GATE, "")
    return cut(gate, MAX_NOTE) != workload.gated_by and not {*gates(gate)} <= {*gates(workload.gated_by)}


def _follow_job(context: JobContext, workload: GangObject) -> tuple[Update, ...]:
    """Take the admission gates off the Workload that others took off the job, and give it the job's limit of time.

    The API server refuses another limit until the quota of an admitted job is given back.
    """
    metadata: JsonObject = {}
    gate, seconds = context.job.annotations.get(ADMISSION_GATE, ""), max_execution_seconds(context.job.labels)
    if cut(gate, MAX_NOTE) != workload.gated_by:
        metadata = {"annotations": {ADMISSION_GATE: gate or None}}
    free = seconds != workload.max_seconds and not workloads.is_true(workload, "Admitted")
    spec: JsonObject = {"maximumExecutionTimeSeconds": seconds} if free else {}
    if not metadata and not spec:
        return ()
    patch: JsonObject = {"metadata": {"uid": workload.uid, **metadata}, "spec": spec}
    return (Update(workload.api, workload.name, patch),)


def _learn_flavors(context: JobContext, workload: GangObject) -> Decision | None:
    """Before pods are made: what the flavors mean to which the job was admitted. An administrator may change them."""
    if not context.missing:
        return None
    known = {name for name, flavor in context.observed.flavors.items() if not _is_outdated(context, flavor)}
    unknown = tuple(name for name in workloads.flavors_of(workload) if name not in known)
    if not unknown:
        return None
    refused = obstructed(context)
    if context.observed.refusal is not None:
        status = counted(context)
        refused = write(context, status, DesiredConditions(pods_ready=pods_ready(context, status)))
    return refused.then(ReadFlavors(unknown))


def _is_outdated(context: JobContext, flavor: Flavor) -> bool:
    """Whether it was read long ago."""
    return flavor.read_at is not None and is_over(flavor.read_at, READ_TTL, context.now)
