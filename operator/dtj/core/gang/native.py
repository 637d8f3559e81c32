"""Gang scheduling of Kubernetes itself: a PodGroup, or in Kubernetes 1.35 a Workload."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, object_at
from dtj.core.gang.fields import present
from dtj.core.gang.group import Group

SCHEDULER_NAME: Final = None

_POD_GROUP: Final = "job"
"""Name of the one group within a Workload of Kubernetes 1.35."""


def group_spec(group: Group, pods: tuple[JsonObject, ...], *, priority: int | None) -> JsonObject:
    """``spec`` of the PodGroup or Workload."""
    policy: JsonObject = {"gang": {"minCount": group.least}}
    if group.api.kind == "PodGroup":
        return present({"schedulingPolicy": policy, "priorityClassName": group.scheduling.priority_class_name})
    owner: JsonObject = {"apiGroup": names.GROUP, "kind": names.KIND, "name": group.job.name}
    return {"controllerRef": owner, "podGroups": [{"name": _POD_GROUP, "policy": policy}]}


def join(group: Group, pod: JsonObject) -> None:
    """Name the group in the pod's spec."""
    pod_spec, name = object_at(pod, "spec"), group.job.name
    if group.api.kind == "PodGroup":
        pod_spec["schedulingGroup"] = {"podGroupName": name}
    else:
        key = f"attempt-{group.attempt}"  # a group of its own for each attempt
        pod_spec["workloadRef"] = {"name": name, "podGroup": _POD_GROUP, "podGroupReplicaKey": key}
