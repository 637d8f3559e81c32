"""The PodGroup or Workload of a job, and what makes its pods members, whichever the scheduler is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dtj.api import kueue_annotations
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Annotation
from dtj.api.spec import Gang
from dtj.core.gang import coscheduling, native, volcano
from dtj.core.gang.group import GangScheduler, Group
from dtj.core.kueue import workloads

SCHEDULERS: Final[Mapping[Gang, GangScheduler]] = {
    Gang.KUEUE: workloads,
    Gang.VOLCANO: volcano,
    Gang.COSCHEDULING: coscheduling,
    Gang.NATIVE: native,
}


def manifest(group: Group, metadata: JsonObject, pods: Iterable[JsonObject], *, priority: int | None) -> JsonObject:
    """The PodGroup or Workload. ``pods`` are the first pods of each role, in TF_CONFIG's order."""
    annotations: JsonObject = {Annotation.GANG_SIZE: group.size}
    if group.api.gang is Gang.KUEUE:
        annotations.update(kueue_annotations.of_workload(group.job.annotations))
        metadata = {**metadata, "labels": {**object_at(metadata, "labels"), workloads.JOB_UID: group.job.uid}}
    return {
        "apiVersion": group.api.api_version,
        "kind": group.api.kind,
        "metadata": {**metadata, "annotations": annotations},
        "spec": SCHEDULERS[group.api.gang].group_spec(group, tuple(pods), priority=priority),
    }


def resize(group: Group) -> JsonObject | None:
    """The merge patch that makes the PodGroup fit the job's new number of pods; None if there is no such patch."""
    changed = SCHEDULERS[group.api.gang].resized(group)
    if changed is None:
        return None
    return {"metadata": {"annotations": {Annotation.GANG_SIZE: group.size}}, "spec": changed}


def prepare(group: Group, pod: JsonObject) -> None:
    """Add to a pod's manifest what all pods of the job need, also one that comes back alone and joins no group."""
    scheduler = SCHEDULERS[group.api.gang].SCHEDULER_NAME
    if scheduler is not None:
        object_at(pod, "spec").setdefault("schedulerName", scheduler)


def join(group: Group, pod: JsonObject) -> None:
    """Add to a pod's manifest what makes it one of the group."""
    SCHEDULERS[group.api.gang].join(group, pod)
