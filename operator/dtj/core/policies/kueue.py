"""Kueue decides when a job runs, and when it gives its quota back."""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Action, DeleteGang, ReadFlavors
from dtj.core.conditions import DesiredCondition, DesiredConditions, pods_ready
from dtj.core.context import JobContext
from dtj.core.decision import Decision
from dtj.core.gang import kueue
from dtj.core.gang.group import size
from dtj.core.observed import GangApi, GangObject
from dtj.core.pod_creation import new_gang
from dtj.core.policies.admission_check import check_template
from dtj.core.policies.name_collision import report_collision
from dtj.core.policies.suspend import stop_all
from dtj.core.policies.workload import needs_more
from dtj.core.status_update import counted, write


def queue(context: JobContext) -> Decision | None:
    """Hold the job while it is queued, and stop it when Kueue wants its quota back; None once it may run."""
    api, workload = context.gang, context.gang_object
    if api is None or api.gang is not Gang.KUEUE:
        return None
    same = workload is not None and _fits(context, workload)
    if workload is not None and same and kueue.admitted(workload):
        return _learn_flavors(context, api, workload)
    if workload is None and not context.begun:
        held = report_collision(context) or check_template(context)
        if held is not None:
            return held
    why = DesiredCondition("True", Reason.QUEUED, kueue.words(workload if same else None))
    stopping = stop_all(context, why)
    return stopping if context.begun else stopping.then(*_into_queue(context, api))


def _into_queue(context: JobContext, api: GangApi) -> tuple[Action, ...]:
    """With no pod left: make the Workload, or replace one that does not fit. Its quota is given back next to that."""
    workload = context.gang_object
    if workload is None:
        return (new_gang(context, api),)
    if workload.terminating:
        return ()
    if _fits(context, workload) and workload.queue == kueue.queue_of(context.spec):
        return ()
    return (DeleteGang(workload.api, workload.name, workload.uid),)


def _fits(context: JobContext, workload: GangObject) -> bool:
    """Whether the Workload asks for what this attempt needs."""
    return workload.size == size(context.spec) and not needs_more(context, workload)


def _learn_flavors(context: JobContext, api: GangApi, workload: GangObject) -> Decision | None:
    """Before pods are made: what the flavors mean to which the job was admitted."""
    unknown = tuple(name for name in kueue.flavors_of(workload) if name not in context.observed.flavors)
    if not unknown:
        return None
    refused = Decision()
    if context.observed.refusal is not None:
        status = counted(context)
        refused = write(context, status, DesiredConditions(pods_ready=pods_ready(context, status)))
    return refused.then(ReadFlavors(api, unknown))
