"""Jobs of two clusters: the manager cluster has the user's job and its Workload, a worker cluster a copy that runs."""

from __future__ import annotations

from typing import Final

from dtj.api import kueue
from dtj.api.json import JsonObject
from dtj.api.names import Label, Reason
from dtj.api.spec import Gang
from dtj.core.actions import Decision, Plan, Update
from dtj.core.admission import workloads
from dtj.core.context import JobContext
from dtj.core.observed import GangObject
from dtj.core.policies import admission, kueue_priorities, kueue_workload_status, ttl_after_finished
from dtj.core.policies.invalid import keep_out
from dtj.core.policies.kueue_queue import ask_why, into_queue, queued_because, take_back
from dtj.core.policies.name_collision import report_workload_of_others
from dtj.core.policies.pods import check_template
from dtj.core.policies.suspend import SUSPENDED_BY_USER, hold
from dtj.core.status_update import obstructed
from dtj.core.validity import Problem

_NO_QUEUE: Final = Problem(
    Reason.GANG_UNAVAILABLE,
    f"spec.managedBy: {kueue.MULTIKUEUE} takes jobs from a queue of Kueue: set runPolicy.scheduling.queue, or "
    "create the job again without managedBy",
)


def plan_dispatched(context: JobContext) -> Plan:
    """All that is done about a job in the manager cluster."""
    decision = _dispatch(context)
    return (*decision.actions, *kueue_workload_status.alongside(context, decision))


def _dispatch(context: JobContext) -> Decision:
    """In the manager cluster: have a Workload in the queue, as long as the job has not ended.

    Once a worker cluster has admitted the copy, the status is the copy's, and only MultiKueue writes it.
    """
    if context.job.status.terminal:
        return ttl_after_finished.delete_when_expired(context) or Decision()
    asked = admission.discover(context)
    if asked is not None:
        return asked
    if context.spec.run_policy.suspend:
        return hold(context, context.job.status, SUSPENDED_BY_USER).then(*admission.drop(context))
    if context.job.status.start_time is not None and isinstance(context.gang_choice, Problem):
        # The copy runs on.
        return Decision(admission.look_again(context))
    found = (*context.problems, *admission.problems(context))
    queued = context.gang is not None and context.gang.gang is Gang.KUEUE and context.spec.scheduling.queue
    if not found and not queued:
        found = (_NO_QUEUE,)
    if found:
        return take_back(context) or keep_out(context, found)
    return _queue(context)


def _queue(context: JobContext) -> Decision:
    api, found = context.gang, context.gang_object
    assert api is not None
    same = found is not None and kueue_workload_status.fits(context, found)
    if found is not None and same and workloads.admitted(found):
        return Decision()
    if found is None:
        held = report_workload_of_others(context) or check_template(context)
        held = held or kueue_priorities.learn(context)
        if held is not None:
            return held
    asked = ask_why(context)
    if asked is not None:
        return asked
    why = queued_because(context, found if same else None)
    return hold(context, context.job.status, why).then(*into_queue(context, api, same=same))


def adopt(context: JobContext) -> Decision | None:
    """In a worker cluster: become the owner of the Workload that MultiKueue made for the copy."""
    found, job = context.observed.gang, context.job
    if not job.prebuilt_workload or found is None or found.owner_uid or found.terminating:
        return None
    if found.namespace != job.namespace or found.api.gang is not Gang.KUEUE or found.owners is None:
        return None
    return obstructed(context).then(Update(found.api, found.name, _owned(context, found, found.owners)))


def _owned(context: JobContext, workload: GangObject, others: tuple[JsonObject, ...]) -> JsonObject:
    """The patch that makes the job the owner that controls it, next to the others, if nothing has changed: somebody
    else may become the owner."""
    return {
        "metadata": {
            "uid": workload.uid,
            "resourceVersion": workload.version,
            "labels": {Label.JOB_UID: context.job.uid, workloads.JOB_UID: context.job.uid},
            "ownerReferences": [*others, context.job.owner_reference()],
        }
    }
