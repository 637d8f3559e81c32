"""Kueue: a Workload for each job. Kueue says when it runs, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from dtj.api.json import JsonObject, dig, extend, object_at, objects, text
from dtj.api.kueue_labels import max_execution_seconds
from dtj.api.spec import JobSpec, Scheduling
from dtj.core.gang.fields import add, present
from dtj.core.gang.group import Group
from dtj.core.observed import Flavor, GangObject

SCHEDULER_NAME: Final = None


def group_spec(group: Group, pods: tuple[JsonObject, ...], *, priority: int | None) -> JsonObject:
    """``spec`` of the Workload: a pod set for each role."""
    sets: list[JsonObject] = [
        {
            "name": str(role),
            "count": group.spec.replicas(role),
            "template": {
                "metadata": {"labels": dig(pod, "metadata", "labels")},
                "spec": dig(pod, "spec"),
            },
        }
        for role, pod in zip(group.spec.roles(), pods, strict=True)
    ]
    return present(
        {
            "queueName": group.scheduling.queue,
            "podSets": [*sets],
            "priority": priority,
            "maximumExecutionTimeSeconds": max_execution_seconds(group.job.labels),
        }
    )


def resized(group: Group) -> JsonObject | None:
    """None: a job of another size gets a new object."""
    return None


def join(group: Group, pod: JsonObject) -> None:
    """Nothing: Kueue counts the pod sets of the Workload, not the pods. See :func:`place`."""


def queue_of(spec: JobSpec) -> str:
    """The LocalQueue of a job; empty if it names none."""
    return (spec.run_policy.scheduling or Scheduling()).queue or ""


def conditions(workload: GangObject) -> list[JsonObject]:
    """The conditions of a Workload, as they are stored."""
    return objects(workload.status.get("conditions"))


def condition(workload: GangObject, kind: str) -> JsonObject:
    """The condition of a type; empty if there is none."""
    return next((found for found in conditions(workload) if found.get("type") == kind), {})


def is_true(workload: GangObject, kind: str) -> bool:
    """Whether the condition of a type is True."""
    return bool(condition(workload, kind).get("status") == "True")


def admitted(workload: GangObject) -> bool:
    """Whether Kueue lets the job run."""
    return workload.active and not workload.terminating and is_true(workload, "Admitted") and not evicted(workload)


def evicted(workload: GangObject) -> bool:
    """Whether Kueue wants back what it has given."""
    return is_true(workload, "Evicted")


def holds_quota(workload: GangObject) -> bool:
    """Whether quota is reserved for the job, still or already."""
    return is_true(workload, "QuotaReserved") or dig(workload.status, "admission") is not None


def words(workload: GangObject | None) -> str:
    """Why the job waits, in Kueue's words."""
    if workload is None:
        return "waiting in the queue"
    if not workload.active:
        why = text(condition(workload, "Evicted").get("message")) or "the workload was deactivated"
        return f"Kueue: {why}: set spec.active of the Workload to true to go on"
    for kind, status in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        found = condition(workload, kind)
        if found.get("status") == status and text(found.get("message")):
            return f"Kueue: {_with_remedy(text(found.get('message')))}"
    return "waiting in the queue"


def _with_remedy(message: str) -> str:
    """Kueue's words, and what to do about a queue that is not there."""
    remedy = ": create it, or set another LocalQueue in runPolicy.scheduling.queue"
    return f"{message}{remedy}" if message.endswith("doesn't exist") else message


def flavors_of(workload: GangObject) -> tuple[str, ...]:
    """The names of the ResourceFlavors that the job was given."""
    found = (
        text(flavor)
        for assignment in objects(dig(workload.status, "admission", "podSetAssignments"))
        for flavor in _values(assignment.get("flavors"))
    )
    return tuple(dict.fromkeys(found))


def place(pod: JsonObject, role: str, workload: GangObject, flavors: dict[str, Flavor]) -> None:
    """Send a pod where Kueue admitted it to: by the flavors of its pod set, and what admission checks ask for."""
    pod_spec, metadata = object_at(pod, "spec"), object_at(pod, "metadata")
    for assignment in objects(dig(workload.status, "admission", "podSetAssignments")):
        if assignment.get("name") == role:
            for flavor in map(flavors.get, map(text, _values(assignment.get("flavors")))):
                if flavor is not None:
                    add(pod_spec, "nodeSelector", {**flavor.node_labels})
                    extend(pod_spec, "tolerations", flavor.tolerations)
    for check in objects(workload.status.get("admissionChecks")):
        for update in objects(check.get("podSetUpdates")):
            if update.get("name") != role:
                continue
            for parent, field in ((pod_spec, "nodeSelector"), (metadata, "labels"), (metadata, "annotations")):
                given = update.get(field)
                if isinstance(given, dict):
                    add(parent, field, given)
            extend(pod_spec, "tolerations", objects(update.get("tolerations")))


def _values(mapping: JsonValue) -> Iterable[JsonValue]:
    return mapping.values() if isinstance(mapping, dict) else ()
