"""What the owner of a Workload writes to its status, so that Kueue knows how the job is.

These are the duties that Kueue carries out for the kinds of jobs that it knows: `reconciler.go` of its
`pkg/controller/jobframework`, version 0.19.2 (`ReconcileGenericJob`, `generatePodsReadyCondition`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.kueue.workloads import condition, conditions, evicted, holds_quota, is_true
from dtj.core.messages import cut
from dtj.core.observed import GangObject
from dtj.core.status import format_time

REQUEUED_AT_ONCE: Final = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which the owner puts the job back into its queue.

After any other, Kueue does it: when the back-off is over, the queue is started again or the Workload is active again.
"""

_NOT_READY: Final = "not all pods are ready or have succeeded"
_RECOVERING: Final = "a pod was lost; not all pods are ready again"
_READY: Final = "all pods are ready or have succeeded"


def pods_ready(workload: GangObject, now: datetime, *, ready: bool) -> JsonObject:
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
    return with_conditions(workload, [_condition("PodsReady", *wanted)], now)


def finished(workload: GangObject, now: datetime, *, reason: str, message: str) -> JsonObject:
    """The fields of the status with the condition Finished; empty if it is there. It gives back all quota, and is never
    taken back."""
    if is_true(workload, "Finished"):
        return {}
    return with_conditions(workload, [_condition("Finished", "True", reason, message)], now)


def released(workload: GangObject, now: datetime) -> JsonObject:
    """The fields of the status that give the quota back, for a job that was evicted and has no pod left.

    Merge them into the status. The seconds that the job was admitted add up, because the limit
    of its time in all is Kueue's to keep.
    """
    eviction = condition(workload, "Evicted")
    why = text(eviction.get("message")) or "the job's pods are gone"
    reason = text(eviction.get("reason")) or "Evicted"
    requeued = "True" if reason in REQUEUED_AT_ONCE and workload.active else "False"
    changed = [
        _condition("QuotaReserved", "False", "Pending", why),
        _condition("Admitted", "False", "NoReservation", "the quota reservation was given back"),
        _condition("Requeued", requeued, reason, why),
    ]
    fields: JsonObject = {"admission": None, "reclaimablePods": None, **with_conditions(workload, changed, now)}
    since = parse_time(condition(workload, "Admitted").get("lastTransitionTime"))
    if is_true(workload, "Admitted") and since is not None:
        field = _past_seconds_field(workload)
        past = dig(workload.status, field)
        before = past if isinstance(past, int) else 0
        fields[field] = before + max(0, round((now - since).total_seconds()))
    return fields


def _past_seconds_field(workload: GangObject) -> str:
    """The field of the seconds that the job was admitted before; v1beta1 misspells it."""
    old = workload.api.api_version.endswith("/v1beta1")
    return "accumulatedPastExexcutionTimeSeconds" if old else "accumulatedPastExecutionTimeSeconds"


def must_release(workload: GangObject) -> bool:
    """Whether Kueue waits for the quota of a job that it has evicted."""
    return evicted(workload) and holds_quota(workload)


def reclaimable(workload: GangObject) -> dict[str, int]:
    """How many pods of each pod set need their quota no longer, as it is recorded."""
    found: dict[str, int] = {}
    for each in objects(workload.status.get("reclaimablePods")):
        count = each.get("count")
        found[text(each.get("name"))] = count if isinstance(count, int) else 0
    return found


def with_reclaimable(workload: GangObject, counts: dict[str, int]) -> JsonObject:
    """The field of the status that records ``counts``; empty if nothing must change.

    A count never falls while the quota is held: what was given back may be another job's by now.
    """
    before = reclaimable(workload)
    after = {name: max(before.get(name, 0), counts.get(name, 0)) for name in {**before, **counts}}
    after = {name: count for name, count in after.items() if count > 0}
    if after == before:
        return {}
    return {"reclaimablePods": [{"name": name, "count": count} for name, count in sorted(after.items())]}


def with_conditions(workload: GangObject, changed: list[JsonObject], now: datetime) -> JsonObject:
    """The list of conditions with these, in place of those of the same types."""
    types = {text(each.get("type")) for each in changed}
    kept: list[JsonObject] = [each for each in conditions(workload) if each.get("type") not in types]
    return {"conditions": [*kept, *(_stamped(workload, each, now) for each in changed)]}


def _stamped(workload: GangObject, changed: JsonObject, now: datetime) -> JsonObject:
    """A transition time moves only when the status of its condition does."""
    before = condition(workload, text(changed.get("type")))
    since = text(before.get("lastTransitionTime")) if before.get("status") == changed.get("status") else ""
    return {**changed, "lastTransitionTime": since or format_time(now)}


def _condition(kind: str, status: str, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": cut(message)}
