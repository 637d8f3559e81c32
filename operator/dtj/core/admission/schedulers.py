"""What differs between the gang schedulers: the PodGroup or Workload of a job, and what makes its pods members.

Sources: the PodGroup API of Kubernetes (KEP-4671, KEP-5832), the PodGroups of Volcano and of the scheduler
plugins (KEP-42 of kubernetes-sigs). Kueue's Workload is in :mod:`dtj.core.admission.workloads`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from dtj.api import kueue, volcano
from dtj.api.job import parse_time
from dtj.api.json import JsonObject, add, condition_of, dig, object_at, present
from dtj.api.names import Annotation
from dtj.api.spec import Gang, Role
from dtj.core.admission import workloads
from dtj.core.admission.group import Group
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.observed import GangObject

SCHEDULER_NAMES: Final = {Gang.VOLCANO: "volcano", Gang.COSCHEDULING: "scheduler-plugins-scheduler"}
"""``schedulerName`` of the pods. For the others, the default scheduler places them."""


def manifest(group: Group, pods: Iterable[JsonObject], *, priority: int | None) -> JsonObject:
    """The PodGroup or Workload. ``pods`` are the first pods of each role, in TF_CONFIG's order."""
    pods = tuple(pods)
    labels, annotations = labels_of(group.job), {Annotation.GANG_SIZE: group.size}
    match group.api.gang:
        case Gang.KUEUE:
            labels[workloads.JOB_UID] = group.job.uid
            annotations |= kueue.annotations_of_workload(group.job.annotations)
            annotations[Annotation.GANG_PODS] = workloads.digest(pods)
            spec = workloads.workload_spec(group, pods, priority=priority)
        case Gang.VOLCANO:
            annotations |= volcano.kept_annotations(group.job.annotations)
            spec = _volcano_spec(group, pods)
        case Gang.COSCHEDULING:
            spec = _coscheduling_spec(group, pods)
        case _:
            spec = _native_spec(group)
    return {
        "apiVersion": group.api.api_version,
        "kind": group.api.kind,
        "metadata": {**metadata_of(group.job, group.job.name, labels=labels), "annotations": {**annotations}},
        "spec": spec,
    }


def resize(group: Group) -> JsonObject | None:
    """The merge patch that makes the PodGroup fit the job's new number of pods.

    None if the object has to be created again for that, as for all but the PodGroups of Kubernetes.
    """
    if group.api.gang is not Gang.NATIVE:
        return None
    return {
        "metadata": {"annotations": {Annotation.GANG_SIZE: group.size}},
        "spec": {"schedulingPolicy": _native_policy(group)},
    }


def prepare(group: Group, pod: JsonObject) -> None:
    """Add to a pod's manifest what all pods of the job need, also one that comes back alone and joins no group."""
    scheduler = SCHEDULER_NAMES.get(group.api.gang)
    if scheduler is not None:
        object_at(pod, "spec").setdefault("schedulerName", scheduler)
    if group.api.gang is Gang.VOLCANO:
        # It takes the pods of one task to be equal: a node that has no room for the first has none for any.
        metadata = object_at(pod, "metadata")
        task = dig(metadata, "labels", group.job.form.role_label)
        add(metadata, "annotations", {"volcano.sh/task-spec": task})
        if queue := group.spec.scheduling.queue:
            # Volcano makes a PodGroup for a pod that comes back alone, in the queue that the pod names.
            add(metadata, "annotations", {"scheduling.volcano.sh/queue-name": queue})


def join(group: Group, pod: JsonObject) -> None:
    """Add to a pod's manifest what makes it one of the group. Kueue counts pod sets instead."""
    name = group.job.name
    match group.api.gang:
        case Gang.VOLCANO:
            add(object_at(pod, "metadata"), "annotations", {"scheduling.k8s.io/group-name": name})
        case Gang.COSCHEDULING:
            add(object_at(pod, "metadata"), "labels", {"scheduling.x-k8s.io/pod-group": name})
        case Gang.NATIVE:
            object_at(pod, "spec")["schedulingGroup"] = {"podGroupName": name}


def disrupted_at(group: GangObject) -> datetime | None:
    """When the infrastructure began to take a whole group of Kubernetes' own away; None if it does not.

    The condition stays when the group starts again: it concerns the pods that were there at that time.
    """
    if group.api.gang is not Gang.NATIVE:
        return None
    found = condition_of(group.status, "DisruptionTarget")
    return parse_time(found.get("lastTransitionTime")) if found.get("status") == "True" else None


def _volcano_spec(group: Group, pods: Iterable[JsonObject]) -> JsonObject:
    """Volcano finds the priority by the name of its class."""
    return present(
        {
            "minMember": group.least,
            "minResources": group.resources(pods),
            "queue": group.spec.scheduling.queue,
            "priorityClassName": group.spec.scheduling.priority_class_name,
        }
    )


def _coscheduling_spec(group: Group, pods: Iterable[JsonObject]) -> JsonObject:
    """The PodGroup of the scheduler plugins knows no priority."""
    return present(
        {
            "minMember": group.least,
            "minResources": group.resources(pods),
            "scheduleTimeoutSeconds": group.spec.scheduling.timeout_seconds,
        }
    )


def _native_spec(group: Group) -> JsonObject:
    """A PodGroup of Kubernetes.

    The replicas of a collective strategy stop when one of them stops: to preempt one of them frees one node and stops
    all. The workers of a parameter-server job go on without the one that is lost.
    """
    return present(
        {
            "schedulingPolicy": _native_policy(group),
            "priorityClassName": group.spec.scheduling.priority_class_name,
            "disruptionMode": {"single": {}} if Role.PS in group.spec.roles() else {"all": {}},
        }
    )


def _native_policy(group: Group) -> JsonObject:
    return {"gang": {"minCount": group.least}}
