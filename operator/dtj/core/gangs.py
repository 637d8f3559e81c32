"""Gangs: whom to tell which pods belong together, in whose words, and what was answered.

What differs between the schedulers is here and nowhere else. Sources: the Workload and PodGroup API of Kubernetes
(KEP-4671, KEP-5832), the PodGroups of Volcano and of the scheduler plugins (KEP-42 of kubernetes-sigs), Kueue's
Workload API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Final

from pydantic import JsonValue

from dtj.api import names, quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, extend, object_at, objects, text
from dtj.api.names import Annotation, Reason
from dtj.api.spec import Gang, JobSpec, Scheduling
from dtj.core.observed import Flavor, GangApi, GangObject, GangsFound
from dtj.core.validity import Problem

APIS: Final = (
    GangApi(Gang.KUEUE, "kueue.x-k8s.io/v1beta2", "Workload", "workloads"),
    GangApi(Gang.KUEUE, "kueue.x-k8s.io/v1beta1", "Workload", "workloads"),
    GangApi(Gang.VOLCANO, "scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"),
    GangApi(Gang.COSCHEDULING, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"),
    GangApi(Gang.NATIVE, "scheduling.k8s.io/v1beta1", "PodGroup", "podgroups"),
    GangApi(Gang.NATIVE, "scheduling.k8s.io/v1alpha3", "PodGroup", "podgroups"),
    GangApi(Gang.NATIVE, "scheduling.k8s.io/v1alpha2", "PodGroup", "podgroups"),
    GangApi(Gang.NATIVE, "scheduling.k8s.io/v1alpha1", "Workload", "workloads"),
)
"""The APIs that are known, of each scheduler the newest version first."""

LOOK_AGAIN_SECONDS: Final = 60.0
"""How often it is asked whether a scheduler that a job names has been installed."""

_POD_GROUP: Final = "job"
"""Name of the one group within a Workload of Kubernetes 1.35."""

_AUTO: Final = (Gang.VOLCANO, Gang.COSCHEDULING, Gang.NATIVE)
_AUTO_WITH_QUEUE: Final = (Gang.KUEUE, Gang.VOLCANO)


def choose(scheduling: Scheduling, found: GangsFound) -> GangApi | Problem | None:
    """Who schedules this job's pods together: an API that is served, None for nobody, or what is wrong."""
    if scheduling.gang is Gang.NONE:
        return None
    automatic = _AUTO if scheduling.queue is None else _AUTO_WITH_QUEUE
    wanted = automatic if scheduling.gang is Gang.AUTO else (scheduling.gang,)
    chosen = next((api for gang in wanted if (api := served(gang, found)) is not None), None)
    if chosen is not None or (scheduling.gang is Gang.AUTO and scheduling.queue is None):
        return chosen
    denied = next((str(api.gang) for api in found.denied if api.gang in wanted), None)
    if denied is not None:
        return Problem(
            Reason.GANG_UNAVAILABLE,
            f"runPolicy.scheduling: this cluster has {denied}, but the operator has no right to tell it of jobs: add "
            f"{denied} to gangSchedulers of its chart, or set another gang",
        )
    there = ", ".join(dict.fromkeys(str(api.gang) for api in found.apis)) or "none"
    return Problem(
        Reason.GANG_UNAVAILABLE,
        f"runPolicy.scheduling: this cluster serves no API of {' or '.join(wanted)}: install it, or set another gang "
        f"(found: {there})",
    )


def served(gang: str, found: GangsFound) -> GangApi | None:
    """The newest API of this scheduler that the cluster has."""
    return next((api for api in found.apis if api.gang == gang), None)


def size(spec: JobSpec) -> str:
    """What a gang's object says of the job: it is made anew where this differs."""
    roles = ",".join(f"{role}={spec.replicas(role)}" for role in spec.roles())
    return f"{roles};min={_least(spec)}"


def _least(spec: JobSpec) -> int:
    """How many pods must be schedulable before any starts."""
    all_pods = sum(spec.replicas(role) for role in spec.roles())
    scheduling = spec.run_policy.scheduling
    given = scheduling.min_available if scheduling is not None else None
    return min(given or all_pods, all_pods)


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one attempt of a job, as the scheduler behind ``api`` is told of them."""

    api: GangApi
    job: Job
    spec: JobSpec
    attempt: int

    @property
    def _scheduling(self) -> Scheduling:
        return self.spec.run_policy.scheduling or Scheduling()

    def manifest(self, metadata: JsonObject, pods: Iterable[JsonObject], *, priority: int | None) -> JsonObject:
        """The PodGroup or Workload. ``pods`` are the first pods of each role, in TF_CONFIG's order."""
        metadata = {**metadata, "annotations": {Annotation.GANG_SIZE: size(self.spec)}}
        return {
            "apiVersion": self.api.api_version,
            "kind": self.api.kind,
            "metadata": metadata,
            "spec": self._spec(tuple(pods), priority),
        }

    def _spec(self, pods: tuple[JsonObject, ...], priority: int | None) -> JsonObject:
        least = _least(self.spec)
        given = self._scheduling
        match self.api.gang:
            case Gang.KUEUE:
                sets: list[JsonObject] = [
                    {
                        "name": str(role),
                        "count": self.spec.replicas(role),
                        "template": {
                            "metadata": {"labels": dig(pod, "metadata", "labels")},
                            "spec": dig(pod, "spec"),
                        },
                    }
                    for role, pod in zip(self.spec.roles(), pods, strict=True)
                ]
                return _present({"queueName": given.queue, "podSets": [*sets], "priority": priority})
            case Gang.VOLCANO:
                return _present(
                    {
                        "minMember": least,
                        "minResources": self._resources(pods, least),
                        "queue": given.queue,
                        "priorityClassName": given.priority_class_name,
                    }
                )
            case Gang.COSCHEDULING:
                return _present(
                    {
                        "minMember": least,
                        "minResources": self._resources(pods, least),
                        "scheduleTimeoutSeconds": given.timeout_seconds,
                    }
                )
        policy: JsonObject = {"gang": {"minCount": least}}
        if self.api.kind == "PodGroup":
            return _present({"schedulingPolicy": policy, "priorityClassName": given.priority_class_name})
        owner: JsonObject = {"apiGroup": names.GROUP, "kind": names.KIND, "name": self.job.name}
        return {"controllerRef": owner, "podGroups": [{"name": _POD_GROUP, "policy": policy}]}

    def _resources(self, pods: tuple[JsonObject, ...], least: int) -> JsonObject | None:
        """What the first ``least`` pods ask for together."""
        total: dict[str, Fraction] = {}
        left = least
        for role, pod in zip(self.spec.roles(), pods, strict=True):
            count = min(self.spec.replicas(role), left)
            left -= count
            total = _sum(total, {name: count * quantity for name, quantity in requests(pod).items()})
        return {name: quantities.shown(quantity) for name, quantity in total.items()} or None

    def join(self, pod: JsonObject) -> None:
        """Add to a pod's manifest what makes it one of the group."""
        pod_spec, metadata = object_at(pod, "spec"), object_at(pod, "metadata")
        match self.api.gang:
            case Gang.VOLCANO:
                _add(metadata, "annotations", {"scheduling.k8s.io/group-name": self.job.name})
            case Gang.COSCHEDULING:
                _add(metadata, "labels", {"scheduling.x-k8s.io/pod-group": self.job.name})
            case Gang.NATIVE if self.api.kind == "PodGroup":
                pod_spec["schedulingGroup"] = {"podGroupName": self.job.name}
            case Gang.NATIVE:
                key = f"attempt-{self.attempt}"  # a group of its own for each attempt
                pod_spec["workloadRef"] = {"name": self.job.name, "podGroup": _POD_GROUP, "podGroupReplicaKey": key}

    def prepare(self, pod: JsonObject) -> None:
        """Add to a pod's manifest what all pods of the job need, also one that comes back alone and joins nobody."""
        scheduler = {Gang.VOLCANO: "volcano", Gang.COSCHEDULING: "scheduler-plugins-scheduler"}.get(self.api.gang)
        if scheduler is not None:
            object_at(pod, "spec").setdefault("schedulerName", scheduler)


def requests(pod: JsonObject) -> dict[str, Fraction]:
    """What the scheduler counts for a pod, by resource.

    The containers run together. An init container runs before them, next to the native sidecars (init containers that
    restart always) listed before it; these stay. A pod may name a sum of its own for CPU, memory and huge pages; its
    runtime class adds an overhead. Source: PodRequests in k8s.io/component-helpers/resource/helpers.go (KEP-753,
    KEP-2837).
    """
    total: dict[str, Fraction] = {}
    for container in objects(dig(pod, "spec", "containers")):
        total = _sum(total, _asked(container))
    sidecars: dict[str, Fraction] = {}
    at_init: dict[str, Fraction] = {}
    for container in objects(dig(pod, "spec", "initContainers")):
        asked = _sum(sidecars, _asked(container))
        if container.get("restartPolicy") == "Always":
            total, sidecars = _sum(total, _asked(container)), asked
        at_init = _largest(at_init, asked)
    total = _largest(total, at_init)
    for_the_pod = _quantities(dig(pod, "spec", "resources", "requests"))
    total.update({name: quantity for name, quantity in for_the_pod.items() if _may_be_for_the_pod(name)})
    return _sum(total, _quantities(dig(pod, "spec", "overhead")))


def _may_be_for_the_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _sum(one: dict[str, Fraction], other: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: one.get(name, Fraction()) + other.get(name, Fraction()) for name in {**one, **other}}


def _largest(one: dict[str, Fraction], other: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: max(one.get(name, Fraction()), other.get(name, Fraction())) for name in {**one, **other}}


def _asked(container: JsonObject) -> dict[str, Fraction]:
    """Requests; a limit is one, too, where nothing else is said."""
    return {
        **_quantities(dig(container, "resources", "limits")),
        **_quantities(dig(container, "resources", "requests")),
    }


def _quantities(given: JsonValue) -> dict[str, Fraction]:
    """Those of ``given`` that are quantities."""
    read = {name: quantities.parse(value) for name, value in given.items()} if isinstance(given, dict) else {}
    return {name: quantity for name, quantity in read.items() if quantity is not None}


# -- Kueue -----------------------------------------------------------------------------------------------------


def admitted(workload: GangObject) -> bool:
    """Whether Kueue lets the job run."""
    return workload.active and not workload.terminating and _is_true(workload, "Admitted") and not evicted(workload)


def evicted(workload: GangObject) -> bool:
    """Whether Kueue wants back what it has given."""
    return _is_true(workload, "Evicted")


def holds_quota(workload: GangObject) -> bool:
    """Whether quota is reserved for the job, still or already."""
    return _is_true(workload, "QuotaReserved") or dig(workload.status, "admission") is not None


def words(workload: GangObject | None) -> str:
    """Why the job waits, in Kueue's words."""
    if workload is None:
        return "waiting in the queue"
    if not workload.active:
        return "Kueue: the workload was deactivated: set spec.active of the Workload to true to go on"
    for kind, status in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        condition = _condition(workload, kind)
        if condition.get("status") == status and text(condition.get("message")):
            return f"Kueue: {text(condition.get('message'))}"
    return "waiting in the queue"


def released(workload: GangObject, now: str) -> JsonObject:
    """The Workload's status once its pods are gone: it holds no quota, and waits in its queue again."""
    why = text(_condition(workload, "Evicted").get("message")) or "the job's pods are gone"
    reason = text(_condition(workload, "Evicted").get("reason")) or "Evicted"
    wanted = {
        "QuotaReserved": ("False", "Pending", why),
        "Admitted": ("False", "NoReservation", "the quota reservation was given back"),
        "Requeued": ("True" if workload.active else "False", reason, why),
    }
    conditions: list[JsonObject] = [c for c in _conditions(workload) if c.get("type") not in wanted]
    for kind, (status, reason, message) in wanted.items():
        before = _condition(workload, kind)
        since = text(before.get("lastTransitionTime")) if before.get("status") == status else ""
        conditions.append(
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since or now}
        )
    return {"admission": None, "conditions": [*conditions]}


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
                    _add(pod_spec, "nodeSelector", {**flavor.node_labels})
                    extend(pod_spec, "tolerations", flavor.tolerations)
    for check in objects(workload.status.get("admissionChecks")):
        for update in objects(check.get("podSetUpdates")):
            if update.get("name") != role:
                continue
            for parent, field in ((pod_spec, "nodeSelector"), (metadata, "labels"), (metadata, "annotations")):
                given = update.get(field)
                if isinstance(given, dict):
                    _add(parent, field, given)
            extend(pod_spec, "tolerations", objects(update.get("tolerations")))


def looked_long_ago(found: GangsFound, now: datetime) -> bool:
    """Whether it is time to ask again what is installed."""
    return (now - found.at).total_seconds() >= LOOK_AGAIN_SECONDS


def _conditions(workload: GangObject) -> list[JsonObject]:
    return objects(workload.status.get("conditions"))


def _condition(workload: GangObject, kind: str) -> JsonObject:
    return next((condition for condition in _conditions(workload) if condition.get("type") == kind), {})


def _is_true(workload: GangObject, kind: str) -> bool:
    return bool(_condition(workload, kind).get("status") == "True")


def _values(mapping: JsonValue) -> Iterable[JsonValue]:
    return mapping.values() if isinstance(mapping, dict) else ()


def _present(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _add(parent: JsonObject, key: str, items: JsonObject) -> None:
    """Put more into the object at ``key``. Pods of a role share their parts: none is changed in place."""
    before = parent.get(key)
    parent[key] = {**(before if isinstance(before, dict) else {}), **items}
