"""Gang scheduling of Kubernetes itself: a PodGroup, or in Kubernetes 1.35 a Workload."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import JsonValue

from dtj.api import names
from dtj.api.job import parse_time
from dtj.api.json import JsonObject, object_at, objects, present
from dtj.api.spec import Gang, Role
from dtj.core.gang.group import Group
from dtj.core.observed import GangObject

SCHEDULER_NAME: Final = None

_POD_GROUP: Final = "job"
"""Name of the one group within a Workload of Kubernetes 1.35."""


def group_spec(group: Group, pods: tuple[JsonObject, ...], *, priority: int | None) -> JsonObject:
    """``spec`` of the PodGroup or Workload."""
    if group.api.kind == "PodGroup":
        key = group.scheduling.topology_key
        return present(
            {
                "schedulingPolicy": _policy(group),
                "priorityClassName": group.scheduling.priority_class_name,
                "disruptionMode": _disruption_mode(group),
                "schedulingConstraints": {"topology": [{"key": key}]} if key is not None else None,
            }
        )
    owner: JsonObject = {"apiGroup": names.GROUP, "kind": names.KIND, "name": group.job.name}
    return {"controllerRef": owner, "podGroups": [{"name": _POD_GROUP, "policy": _policy(group)}]}


def resized(group: Group) -> JsonObject | None:
    """What changes in ``spec`` with the number of pods. The API of 1.35 allows no such change."""
    return {"schedulingPolicy": _policy(group)} if group.api.kind == "PodGroup" else None


def disrupted_at(group: GangObject) -> datetime | None:
    """When the infrastructure began to take the whole group away; None if it does not.

    The condition stays when the group starts again: it concerns the pods that were there at that time.
    """
    if group.api.gang is not Gang.NATIVE:
        return None
    conditions = objects(group.status.get("conditions"))
    found = next((c for c in conditions if c.get("type") == "DisruptionTarget" and c.get("status") == "True"), None)
    return parse_time(found.get("lastTransitionTime")) if found is not None else None


def join(group: Group, pod: JsonObject) -> None:
    """Name the group in the pod's spec."""
    pod_spec, name = object_at(pod, "spec"), group.job.name
    if group.api.kind == "PodGroup":
        pod_spec["schedulingGroup"] = {"podGroupName": name}
    else:
        key = f"attempt-{group.attempt}"  # a group of its own for each attempt
        pod_spec["workloadRef"] = {"name": name, "podGroup": _POD_GROUP, "podGroupReplicaKey": key}


def _policy(group: Group) -> JsonObject:
    return {"gang": {"minCount": group.least}}


def _disruption_mode(group: Group) -> JsonValue:
    """Whether the scheduler may preempt one pod alone.

    The replicas of a collective strategy stop when one of them stops: to preempt one of them frees one node and stops
    all. The workers of a parameter-server job go on without the one that is lost.
    """
    return {"single": {}} if Role.PS in group.spec.roles() else {"all": {}}
