"""What Kueue learns of an admitted job: whether its pods are ready, which it needs no longer, and how it ended."""

from __future__ import annotations

from collections import Counter

from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.spec import Gang
from dtj.core.actions import CreateGang, DeleteGang, LookForGangs, UpdateWorkloadStatus
from dtj.core.context import JobContext
from dtj.core.decision import Decision
from dtj.core.gang import workload_status
from dtj.core.gang.kueue import is_true
from dtj.core.observed import GangObject


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


def find_after_the_end(context: JobContext) -> Decision | None:
    """Ask for Kueue's API once, so that the Workload of a job that ended before this process began is finished, too."""
    status, scheduling = context.job.status, context.spec.run_policy.scheduling
    queued = scheduling is not None and scheduling.queue is not None and status.gang in ("", Gang.KUEUE)
    return Decision.of(LookForGangs()) if queued and context.observed.gangs is None else None


def needs_more(context: JobContext, workload: GangObject) -> bool:
    """Whether this attempt needs quota that completed pods of an earlier attempt gave back."""
    completed = _completed(context)
    return any(completed[role] < count for role, count in workload_status.reclaimable(workload).items())


def _changed(context: JobContext, workload: GangObject) -> JsonObject:
    status = context.job.status
    if status.terminal:
        end = status.condition(Condition.COMPLETE if status.is_true(Condition.COMPLETE) else Condition.FAILED)
        message = end.message if end is not None else ""
        done = workload_status.finished(workload, succeeded=status.is_true(Condition.COMPLETE), message=message)
        return workload_status.with_conditions(workload, [done] if done is not None else [], context.now)
    if status.is_true(Condition.SUCCESS_CRITERIA_MET) or status.is_true(Condition.FAILURE_TARGET):
        return {}  # its pods stop because it ends, which is no loss to recover from
    if not context.begun and workload_status.must_release(workload):
        return workload_status.released(workload, context.now)
    ready = workload_status.pods_ready(workload, ready=context.all_ready)
    conditions = workload_status.with_conditions(workload, [ready] if ready is not None else [], context.now)
    counts = _completed(context) if is_true(workload, "Admitted") and context.begun else Counter[str]()
    return {**conditions, **workload_status.with_reclaimable(workload, counts)}


def _completed(context: JobContext) -> Counter[str]:
    """By role, the replicas that have completed and whose pods hold nothing any more, not even for a sidecar."""
    holding = {pod.name for pod in context.current if not pod.stopped}
    return Counter(str(replica.role) for replica in context.completed if context.name_of(replica) not in holding)
