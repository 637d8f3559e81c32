"""Kueue: a Workload for each job. Kueue says when it runs, and on which nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dtj.api.json import (
    JsonObject,
    add,
    condition_of,
    dig,
    digest_of,
    extend,
    fields_of,
    object_at,
    objects,
    present,
    text,
)
from dtj.api.kueue import (
    TOPOLOGY_CHOICES,
    TOPOLOGY_UNCONSTRAINED,
    max_execution_seconds,
    priority_class,
    topology_request,
)
from dtj.api.spec import Role
from dtj.core.admission.group import Group, requests
from dtj.core.admission.partial_admission import least_workers, pod_sets
from dtj.core.messages import WAITING_IN_QUEUE
from dtj.core.observed import Flavor, GangObject

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""The label by which ``kueuectl`` finds the Workload of a job."""

LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"
CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"
"""Labels of pods, by which their use of resources can be added up for each queue."""

WORKLOAD: Final = "kueue.x-k8s.io/workload"
POD_SET: Final = "kueue.x-k8s.io/podset"
DEFAULT_QUEUE: Final = "default"
"""The name of the LocalQueue for jobs that name none (pkg/controller/constants, DefaultLocalQueueName)."""

TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"

_MAX_LABEL: Final = 63
"""Most characters in the value of a label."""


def workload_spec(group: Group, pods: Iterable[JsonObject], *, priority: int | None) -> JsonObject:
    """``spec`` of the Workload: a pod set for each role."""
    sets: list[JsonObject] = [
        present(
            {
                "name": str(role),
                "count": group.spec.replicas(role),
                "minCount": least_workers(group.job, group.spec, pod) if role is Role.WORKER else None,
                "topologyRequest": topology_request(pod),
                "template": {
                    "metadata": {"labels": dig(pod, "metadata", "labels")},
                    "spec": dig(pod, "spec"),
                },
            }
        )
        for role, pod in zip(group.spec.roles(), pods, strict=True)
    ]
    return present(
        {
            "queueName": group.spec.scheduling.queue,
            "podSets": [*sets],
            "priority": priority,
            **priority_class_fields(priority_class(group.job.labels)),
            "maximumExecutionTimeSeconds": max_execution_seconds(group.job.labels),
        }
    )


def digest(pods: Iterable[JsonObject]) -> str:
    """Of the first pods or the templates of all roles what decides whether, and to which flavors, Kueue admits them."""
    read = [
        [
            {name: str(quantity) for name, quantity in requests(pod).items()},
            *(dig(pod, "spec", field) for field in ("nodeSelector", "affinity", "tolerations")),
            topology_request(pod),
        ]
        for pod in pods
    ]
    return digest_of(read)


def priority_class_fields(name: str) -> JsonObject:
    """The fields of a Workload that name its WorkloadPriorityClass; none if the name is empty."""
    if not name:
        return {}
    return {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}}


def condition(workload: GangObject, kind: str) -> JsonObject:
    """The condition of a type; empty if there is none."""
    return condition_of(workload.status, kind)


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


def inactive_queue(workload: GangObject) -> str:
    """The ClusterQueue of which Kueue says that it is inactive, and not why; empty if it says something else."""
    found = _INACTIVE_QUEUE.fullmatch(text(condition(workload, "QuotaReserved").get("message")))
    return found[1] if found else ""


def words(workload: GangObject | None, *, inactive: str = "") -> str:
    """Why the job waits, in Kueue's words; ``inactive`` is why the :func:`inactive_queue` is."""
    if workload is None:
        return WAITING_IN_QUEUE
    if not workload.active:
        why = text(condition(workload, "Evicted").get("message")) or "the workload was deactivated"
        return f"Kueue: {why}: set spec.active of the Workload to true to go on"
    # An eviction is told until the quota is given back. What Kueue says of the queue then is newer.
    for kind, status in (("QuotaReserved", "False"), ("Evicted", "True"), ("Admitted", "False")):
        found = condition(workload, kind)
        if found.get("status") == status and text(found.get("message")):
            said = text(found.get("message"))
            if inactive and kind == "QuotaReserved":
                said = f"{said}: {inactive.removeprefix(_INACTIVE).removesuffix('.')}"
            return f"Kueue: {_with_remedy(said)}"
    return _checks(workload) or WAITING_IN_QUEUE


def _checks(workload: GangObject) -> str:
    """The admission checks that an admitted job would need, and that are not ready."""
    waits = (check for check in objects(workload.status.get("admissionChecks")) if check.get("state") != "Ready")
    said = (f"{text(each.get('name'))} is {text(each.get('state'))}: {text(each.get('message'))}" for each in waits)
    return "; ".join(f"Kueue: admission check {each.removesuffix(': ')}" for each in said)


_INACTIVE_QUEUE: Final = re.compile(r"ClusterQueue (\S+) is inactive")
_INACTIVE: Final = "Can't admit new workloads: "
"""With this begins what a ClusterQueue says of itself."""

_REMEDIES: Final = tuple(
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        (
            r"^LocalQueue \S+ doesn't exist$",
            "create it, or name another in the label kueue.x-k8s.io/queue-name; a job that names its queue in "
            "runPolicy.scheduling must be created again",
        ),
        (
            r"^ClusterQueue \S+ doesn't exist$",
            "create it, or create the LocalQueue again with another spec.clusterQueue",  # which cannot be changed
        ),
        (r"^LocalQueue \S+ is inactive$", "set spec.stopPolicy of the LocalQueue to None to go on"),
        (r"^ClusterQueue \S+ is inactive$", "correct what the condition Active of the ClusterQueue names"),
        (r"^ClusterQueue \S+ is inactive: is stopped$", "set spec.stopPolicy of the ClusterQueue to None to go on"),
        (r"^ClusterQueue \S+ is inactive: (?!is stopped$)", "create or correct what this names"),
        (r"^(The LocalQueue|LocalQueue \S+) is stopped$", "set spec.stopPolicy of the LocalQueue to None to go on"),
        (
            r"^(The ClusterQueue|ClusterQueue \S+) is stopped$",
            "set spec.stopPolicy of the ClusterQueue to None to go on",
        ),
        (
            r"^workload namespace doesn't match ClusterQueue selector$",
            "have spec.namespaceSelector of the ClusterQueue match the namespace; {} matches all",
        ),
        (r"\bunavailable in ClusterQueue$", "add the resource to spec.resourceGroups of the ClusterQueue"),
        (
            r"does not contain the requested level$",
            "name a level of the flavor's Topology in the annotations of the template, or add the level there",
        ),
        (
            r"does not support TopologyAwareScheduling$",
            "set spec.topologyName of the ResourceFlavor, or remove the annotations podset-*-topology of the template",
        ),
        (r"> maximum capacity \([^()]*\)$", "request less, or raise nominalQuota of the ClusterQueue"),
    )
)
"""Messages of Kueue 0.19.2 that tell of something to correct (`getQueueBlocker`, `ValidateAdmissibility`, the flavor
assigner), and what to do."""


def _with_remedy(message: str) -> str:
    """Kueue's words, and what to do about a job that cannot be admitted as things are."""
    return ": ".join((message, *(remedy for pattern, remedy in _REMEDIES if pattern.search(message))))


def flavors_of(workload: GangObject) -> tuple[str, ...]:
    """The names of the ResourceFlavors that the job was given."""
    found = (
        text(flavor) for assignment in pod_sets(workload) for flavor in fields_of(assignment.get("flavors")).values()
    )
    return tuple(dict.fromkeys(found))


def gives_nodes(workload: GangObject) -> bool:
    """Whether Kueue gives each pod of the job its node."""
    return any(assignment.get("topologyAssignment") is not None for assignment in pod_sets(workload))


def place(pod: JsonObject, role: str, workload: GangObject, flavors: dict[str, Flavor]) -> None:
    """Send a pod where Kueue admitted it to: by the flavors of its pod set, and what admission checks ask for.

    If Kueue has chosen nodes for the pod set, the pod waits until Kueue has given it its node.
    """
    pod_spec, metadata = object_at(pod, "spec"), object_at(pod, "metadata")
    add(metadata, "annotations", {WORKLOAD: workload.name})
    add(metadata, "labels", {POD_SET: role, **_queue_labels(workload)})
    for assignment in pod_sets(workload):
        if assignment.get("name") == role:
            for flavor in map(flavors.get, map(text, fields_of(assignment.get("flavors")).values())):
                if flavor is not None:
                    add(pod_spec, "nodeSelector", {**flavor.node_labels})
                    extend(pod_spec, "tolerations", flavor.tolerations)
            if assignment.get("topologyAssignment") is not None:
                _wait_for_node(pod_spec, metadata)
    for check in objects(workload.status.get("admissionChecks")):
        for update in objects(check.get("podSetUpdates")):
            if update.get("name") != role:
                continue
            for parent, field in ((pod_spec, "nodeSelector"), (metadata, "labels"), (metadata, "annotations")):
                if given := fields_of(update.get(field)):
                    add(parent, field, given)
            extend(pod_spec, "tolerations", objects(update.get("tolerations")))


def _queue_labels(workload: GangObject) -> JsonObject:
    """The queues that admitted the job; the name of a ClusterQueue may be too long for a label."""
    cluster = text(dig(workload.status, "admission", "clusterQueue"))
    found: JsonObject = {LOCAL_QUEUE: workload.queue, CLUSTER_QUEUE: cluster}
    return {key: name for key, name in found.items() if name and len(str(name)) <= _MAX_LABEL}


def _wait_for_node(pod_spec: JsonObject, metadata: JsonObject) -> None:
    """Add the gate that Kueue's topology ungater removes. It finds the pod by one of the annotations."""
    extend(pod_spec, "schedulingGates", [{"name": TOPOLOGY_GATE}])
    if not any(dig(metadata, "annotations", choice) for choice in TOPOLOGY_CHOICES):
        add(metadata, "annotations", {TOPOLOGY_UNCONSTRAINED: "true"})
