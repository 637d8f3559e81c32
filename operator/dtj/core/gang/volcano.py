"""Volcano: a PodGroup, which pods join by an annotation."""

from __future__ import annotations

from typing import Final

from dtj.api.json import JsonObject, add, object_at, present
from dtj.core.gang.group import Group

SCHEDULER_NAME: Final = "volcano"


def group_spec(group: Group, pods: tuple[JsonObject, ...], *, priority: int | None) -> JsonObject:
    """``spec`` of the PodGroup. Volcano finds the priority by the name of its class."""
    return present(
        {
            "minMember": group.least,
            "minResources": group.resources(pods),
            "queue": group.scheduling.queue,
            "priorityClassName": group.scheduling.priority_class_name,
        }
    )


def resized(group: Group) -> JsonObject | None:
    """None: a job of another size gets a new object."""
    return None


def join(group: Group, pod: JsonObject) -> None:
    """Name the group in the pod's annotations."""
    add(object_at(pod, "metadata"), "annotations", {"scheduling.k8s.io/group-name": group.job.name})
