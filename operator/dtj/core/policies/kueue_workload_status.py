"""What Kueue learns of an admitted job: whether its pods are ready, which it needs no longer, and how it ended.

The owner of a Workload writes it to the Workload's status: duties that Kueue carries out for the kinds of jobs that it
knows (`reconciler.go` of its `pkg/controller/jobframework`, version 0.19.2: `ReconcileGenericJob`,
`generatePodsReadyCondition`).
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition
from dtj.api.spec import Gang, Role
from dtj.core.actions import Action, Decision, UpdateWorkloadStatus
from dtj.core.admission.workloads import admitted, condition, digest, evicted, holds_quota, is_true
from dtj.core.context import JobContext
from dtj.core.manifests.pod import role_template
from dtj.core.messages import cut
from dtj.core.observed import GangObject
from dtj.core.policies import kueue_checkpoints, kueue_priorities
from dtj.core.status import format_time

PAST_SECONDS: Final = "accumulatedPastExecutionTimeSeconds"
"""The field of a Workload's status with the seconds that the job was admitted before."""

_OUT_OF_SYNC: Final = "the Workload does not have the pods of the job"


def alongside(context: JobContext, decision: Decision) -> tuple[Action, ...]:
    """What changes of the Workload next to what is decided about its job: its status, its priority, then a note."""
    return (
        *_report(context, decision),
        *kueue_priorities.alongside(context, decision),
        *kueue_checkpoints.alongside(context, decision),
    )


def _report(context: JobContext, decision: Decision) -> tuple[UpdateWorkloadStatus, ...]:
    """One write of all that has changed, or none."""
    api, workload = context.gang, context.gang_object
    if api is None or api.gang is not Gang.KUEUE or workload is None or workload.terminating:
        return ()
    if decision.replaces_gang or is_true(workload, "Finished"):
        return ()
    status = _changed(context, workload)
    return (UpdateWorkloadStatus(workload.api, workload.name, workload.version, status),) if status else ()


def fits(context: JobContext, workload: GangObject) -> bool:
    """Whether the Workload asks for what this attempt needs."""
    same_size = workload.size == context.group(workload.api).size
    return same_size and not _needs_more(context, workload) and _has_pods(context, workload)


def _has_pods(context: JobContext, workload: GangObject) -> bool:
    """Whether the Workload is for the pods that are about to be made: the accelerator profiles of the operator may have
    changed, or the operator has not seen that the job was suspended, changed and resumed. Pods that run stay as they
    are, as long as none is missing. Those of another cluster are made there, by its profiles.
    """
    elsewhere = context.job.prebuilt_workload or (context.dispatched and admitted(workload))
    complete = context.current and not context.missing
    if not workload.pods or complete or elsewhere:
        return True
    job, spec, platform = context.job, context.spec, context.platform
    # What makes each pod of a role another one is not read, and costs as much as there are replicas.
    return workload.pods == digest(role_template(job, spec, role, platform=platform) for role in spec.roles())


def _needs_more(context: JobContext, workload: GangObject) -> bool:
    """Whether this attempt needs quota that completed pods of an earlier attempt gave back. An eviction gives all back,
    and the next admission is for all."""
    if evicted(workload):
        return False
    released = _given_back(context)
    return any(released[role] < count for role, count in _reclaimable(workload).items())


def _changed(context: JobContext, workload: GangObject) -> JsonObject:
    status = context.job.status
    if context.dispatched:
        return _of_a_copy(context, workload)
    if status.terminal:
        end = status.condition(Condition.COMPLETE if status.is_true(Condition.COMPLETE) else Condition.FAILED)
        message = end.message if end is not None else ""
        reason = "Succeeded" if status.is_true(Condition.COMPLETE) else "Failed"
        return _finished(workload, context.now, reason=reason, message=message)
    if status.is_true(Condition.SUCCESS_CRITERIA_MET) or status.is_true(Condition.FAILURE_TARGET):
        return {}  # its pods stop because it ends, which is no loss to recover from
    if not context.has_something_to_stop and _must_release(workload):
        return _released(workload, context.now)
    if context.job.spec is None:
        return {}  # what its pods should be is not known
    if context.job.prebuilt_workload:
        return _of_others(context, workload)
    if not is_true(workload, "Admitted"):
        return _pods_ready(workload, context.now, ready=False)
    ready = _pods_ready(workload, context.now, ready=context.all_ready)
    counts = _given_back(context) if context.has_something_to_stop else Counter[str]()
    return {**ready, **_with_reclaimable(workload, counts)}


def _of_a_copy(context: JobContext, workload: GangObject) -> JsonObject:
    """In the manager cluster the job has no pods: its status is that of the copy, whose end MultiKueue reports."""
    status = context.job.status
    if status.terminal:
        return {}
    if _must_release(workload):
        return _released(workload, context.now)
    return _pods_ready(workload, context.now, ready=status.is_true(Condition.PODS_READY))


def _of_others(context: JobContext, workload: GangObject) -> JsonObject:
    """A Workload that others made is never replaced. So no quota is given back that a restart may need, and one that
    does not fit the job is over: MultiKueue makes another."""
    if fits(context, workload):
        return _pods_ready(workload, context.now, ready=context.all_ready)
    if context.has_something_to_stop:
        return {}
    return _finished(workload, context.now, reason="OutOfSync", message=_OUT_OF_SYNC)


def _given_back(context: JobContext) -> Counter[str]:
    """By role, the pods of the Workload that hold no quota any more: of replicas that have completed, when not even a
    sidecar runs. Kueue counts the workers that it never admitted, too."""
    holding = {pod.name for pod in context.current if not pod.all_containers_ended}
    found = Counter(str(replica.role) for replica in context.completed if context.name_of(replica) not in holding)
    if found[Role.WORKER]:
        found[Role.WORKER] += context.withheld
    return found


_REQUEUED_AT_ONCE: Final = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which the owner puts the job back into its queue.

After any other, Kueue does it: when the back-off is over, the queue is started again or the Workload is active again.
"""

_DEACTIVATED: Final = "Deactivated"
"""How Kueue's reasons of a deactivation begin. Of a Workload that is active again it ends a pause of this one alone."""

_TIMED_OUT: Final = "DeactivatedDueToMaximumExecutionTimeExceeded"

_NOT_READY: Final = "not all pods are ready or have succeeded"
_RECOVERING: Final = "a pod was lost; not all pods are ready again"
_READY: Final = "all pods are ready or have succeeded"


def _pods_ready(workload: GangObject, now: datetime, *, ready: bool) -> JsonObject:
    """The fields of the status with the condition PodsReady if it must change; empty if not. ``ready`` is whether each
    pod is ready or has succeeded.

    Kueue evicts an admitted job that does not have it in time. It distinguishes a start from a recovery, for which it
    has another limit.
    """
    before = condition(workload, "PodsReady")
    known = (before.get("status"), before.get("reason"))
    if not is_true(workload, "Admitted"):
        # Before the first admission, an absent condition has the same meaning.
        wanted = ("False", "WaitForStart", _NOT_READY) if before else None
    elif ready:
        again = known[1] in ("WaitForRecovery", "Recovered")
        wanted = ("True", "Recovered" if again else "Started", _READY)
    elif known[0] == "True" or known[1] == "WaitForRecovery":
        wanted = ("False", "WaitForRecovery", _RECOVERING)
    else:
        wanted = ("False", "WaitForStart", _NOT_READY)
    if wanted is None or known == wanted[:2]:
        return {}
    return _with_conditions(workload, [_condition("PodsReady", *wanted)], now)


def _finished(workload: GangObject, now: datetime, *, reason: str, message: str) -> JsonObject:
    """The fields of the status with the condition Finished. It gives back all quota, and is never taken back."""
    return _with_conditions(workload, [_condition("Finished", "True", reason, message)], now)


def _released(workload: GangObject, now: datetime) -> JsonObject:
    """The fields of the status that give the quota back, for a job that was evicted and has no pod left.

    Merge them into the status. The seconds that the job was admitted add up, because the limit
    of its time in all is Kueue's to keep.
    """
    eviction = condition(workload, "Evicted")
    why = text(eviction.get("message")) or "the job's pods are gone"
    reason = text(eviction.get("reason")) or "Evicted"
    timed_out = reason == _TIMED_OUT
    if reason.startswith(_DEACTIVATED):
        reason = _DEACTIVATED
    requeued = "True" if reason in _REQUEUED_AT_ONCE and workload.active else "False"
    changed = [
        _condition("QuotaReserved", "False", "Pending", why),
        _condition("Admitted", "False", "NoReservation", "the quota reservation was given back"),
        _condition("Requeued", requeued, reason, why),
    ]
    fields: JsonObject = {"admission": None, "reclaimablePods": None, **_with_conditions(workload, changed, now)}
    since = parse_time(condition(workload, "Admitted").get("lastTransitionTime"))
    if is_true(workload, "Admitted") and since is not None and not timed_out:  # then Kueue has begun to count anew
        past = dig(workload.status, PAST_SECONDS)
        before = past if isinstance(past, int) else 0
        fields[PAST_SECONDS] = before + max(0, round((now - since).total_seconds()))
    return fields


def _must_release(workload: GangObject) -> bool:
    """Whether Kueue waits for the quota of a job that it has evicted."""
    return evicted(workload) and holds_quota(workload)


def _reclaimable(workload: GangObject) -> dict[str, int]:
    """How many pods of each pod set need their quota no longer, as it is recorded."""
    found: dict[str, int] = {}
    for each in objects(workload.status.get("reclaimablePods")):
        count = each.get("count")
        found[text(each.get("name"))] = count if isinstance(count, int) else 0
    return found


def _with_reclaimable(workload: GangObject, counts: dict[str, int]) -> JsonObject:
    """The field of the status that records ``counts``; empty if nothing must change.

    A count never falls while the quota is held: what was given back may be another job's by now.
    """
    before = _reclaimable(workload)
    after = {name: max(before.get(name, 0), counts.get(name, 0)) for name in {**before, **counts}}
    after = {name: count for name, count in after.items() if count > 0}
    if after == before:
        return {}
    return {"reclaimablePods": [{"name": name, "count": count} for name, count in sorted(after.items())]}


def _with_conditions(workload: GangObject, changed: list[JsonObject], now: datetime) -> JsonObject:
    """The list of conditions with these, in place of those of the same types."""
    types = {text(each.get("type")) for each in changed}
    kept: list[JsonObject] = [
        each for each in objects(workload.status.get("conditions")) if each.get("type") not in types
    ]
    return {"conditions": [*kept, *(_stamped(workload, each, now) for each in changed)]}


def _stamped(workload: GangObject, changed: JsonObject, now: datetime) -> JsonObject:
    """A transition time moves only when the status of its condition does."""
    before = condition(workload, text(changed.get("type")))
    since = text(before.get("lastTransitionTime")) if before.get("status") == changed.get("status") else ""
    return {**changed, "lastTransitionTime": since or format_time(now)}


def _condition(kind: str, status: str, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": cut(message)}
