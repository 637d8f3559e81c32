"""The scheduler plugins of kubernetes-sigs: a PodGroup, which pods join by a label."""

from __future__ import annotations

from typing import Final

from dtj.api.json import JsonObject, add, object_at, present
from dtj.core.gang.group import Group

SCHEDULER_NAME: Final = "scheduler-plugins-scheduler"


def group_spec(group: Group, pods: tuple[JsonObject, ...], *, priority: int | None) -> JsonObject:
    """``spec`` of the PodGroup, which knows no priority."""
    return present(
        {
            "minMember": group.least,
            "minResources": group.resources(pods),
            "scheduleTimeoutSeconds": group.scheduling.timeout_seconds,
        }
    )


def resized(group: Group) -> JsonObject | None:
    """None: a job of another size gets a new object."""
    return None


def join(group: Group, pod: JsonObject) -> None:
    """Name the group in the pod's labels."""
    add(object_at(pod, "metadata"), "labels", {"scheduling.x-k8s.io/pod-group": group.job.name})
