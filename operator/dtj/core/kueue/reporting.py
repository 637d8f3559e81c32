"""What Kueue learns of an admitted job: whether its pods are ready, which it needs no longer, and how it ended."""

from __future__ import annotations

from collections import Counter
from typing import Final

from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.spec import Gang, Role
from dtj.core.actions import Action, CreateGang, DeleteGang, UpdateWorkloadStatus
from dtj.core.context import JobContext
from dtj.core.decision import Decision
from dtj.core.kueue import priorities, workload_status
from dtj.core.kueue.workloads import is_true
from dtj.core.observed import GangObject

_OUT_OF_SYNC: Final = "the Workload does not have the pods of the job"


def next_to(context: JobContext, decision: Decision) -> tuple[Action, ...]:
    """What changes of the Workload next to what is decided about its job: its status, then its priority."""
    return (*report(context, decision), *priorities.next_to(context, decision))


def report(context: JobContext, decision: Decision) -> tuple[UpdateWorkloadStatus, ...]:
    """Next to what is decided: one write of all that has changed, or none."""
    api, workload = context.gang, context.gang_object
    if api is None or api.gang is not Gang.KUEUE or workload is None or workload.terminating:
        return ()
    replaced = any(isinstance(action, CreateGang | DeleteGang) for action in decision.actions)
    if replaced or is_true(workload, "Finished"):
        return ()
    status = _changed(context, workload)
    return (UpdateWorkloadStatus(workload.api, workload.name, workload.version, status),) if status else ()


def fits(context: JobContext, workload: GangObject) -> bool:
    """Whether the Workload asks for what this attempt needs."""
    return workload.size == context.gang_size and not _needs_more(context, workload)


def _needs_more(context: JobContext, workload: GangObject) -> bool:
    """Whether this attempt needs quota that completed pods of an earlier attempt gave back."""
    released = _given_back(context)
    return any(released[role] < count for role, count in workload_status.reclaimable(workload).items())


def _changed(context: JobContext, workload: GangObject) -> JsonObject:
    status = context.job.status
    if context.dispatched:
        return _of_a_copy(context, workload)
    if status.terminal:
        end = status.condition(Condition.COMPLETE if status.is_true(Condition.COMPLETE) else Condition.FAILED)
        message = end.message if end is not None else ""
        reason = "Succeeded" if status.is_true(Condition.COMPLETE) else "Failed"
        return workload_status.finished(workload, context.now, reason=reason, message=message)
    if status.is_true(Condition.SUCCESS_CRITERIA_MET) or status.is_true(Condition.FAILURE_TARGET):
        return {}  # its pods stop because it ends, which is no loss to recover from
    if not context.begun and workload_status.must_release(workload):
        return workload_status.released(workload, context.now)
    if context.job.prebuilt_workload:
        return _of_others(context, workload)
    conditions = workload_status.pods_ready(workload, context.now, ready=context.all_ready)
    counts = _given_back(context) if is_true(workload, "Admitted") and context.begun else Counter[str]()
    return {**conditions, **workload_status.with_reclaimable(workload, counts)}


def _of_a_copy(context: JobContext, workload: GangObject) -> JsonObject:
    """In the manager cluster the job has no pods: its status is that of the copy, whose end MultiKueue reports."""
    status = context.job.status
    if status.terminal:
        return {}
    if workload_status.must_release(workload):
        return workload_status.released(workload, context.now)
    return workload_status.pods_ready(workload, context.now, ready=status.is_true(Condition.PODS_READY))


def _of_others(context: JobContext, workload: GangObject) -> JsonObject:
    """A Workload that others made is never replaced. So no quota is given back that a restart may need, and one that
    does not fit the job is over: MultiKueue makes another."""
    if fits(context, workload):
        return workload_status.pods_ready(workload, context.now, ready=context.all_ready)
    if context.begun:
        return {}
    return workload_status.finished(workload, context.now, reason="OutOfSync", message=_OUT_OF_SYNC)


def _given_back(context: JobContext) -> Counter[str]:
    """By role, the pods of the Workload that hold no quota any more: Kueue counts those that it never admitted, too."""
    found = _completed(context)
    if found[Role.WORKER]:
        found[Role.WORKER] += context.withheld
    return found


def _completed(context: JobContext) -> Counter[str]:
    """By role, the replicas that have completed and whose pods hold nothing any more, not even for a sidecar."""
    holding = {pod.name for pod in context.current if not pod.stopped}
    return Counter(str(replica.role) for replica in context.completed if context.name_of(replica) not in holding)
