"""Queues and quota of the real Kueue, and what it and the operator have written on Workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import JsonValue

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.status import format_time
from support.job_world import JobWorld
from support.waiting import eventually, eventually_equal
from testbed.kueue import VERSION

KUEUE = f"/apis/{VERSION}"
_CLUSTER_WIDE = {
    "ResourceFlavor": "resourceflavors",
    "ClusterQueue": "clusterqueues",
    "Topology": "topologies",
    "AdmissionCheck": "admissionchecks",
    "MultiKueueConfig": "multikueueconfigs",
    "MultiKueueCluster": "multikueueclusters",
}

ONE_CPU: JsonObject = {
    "spec": {"containers": [{"name": "trainer", "image": "example/trainer:1", "resources": {"requests": {"cpu": "1"}}}]}
}
"""Pods of which each needs one CPU of the quota."""


@dataclass
class Queues:
    """Flavors, ClusterQueues and LocalQueues of one test; `prefix` keeps their names from those of other tests."""

    world: JobWorld
    prefix: str
    _made: list[tuple[str, str]] = field(default_factory=list)

    def make(
        self,
        queue: str,
        *,
        cpus: int = 0,
        amounts: Mapping[str, str] = {},
        cohort: str = "",
        check: str = "",
        **spec: JsonValue,
    ) -> None:
        """A LocalQueue, and the ClusterQueue of the same name behind it, which has this number of CPUs, these amounts
        of other resources, and this admission check."""
        quotas = {"cpu": str(cpus), **amounts}
        resources: list[JsonValue] = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
        group: JsonObject = {
            "coveredResources": [*quotas],
            "flavors": [{"name": self.flavor(), "resources": resources}],
        }
        more: JsonObject = {"cohortName": f"{self.prefix}-{cohort}"} if cohort else {}
        if check:
            more["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
        self.create("ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": [group], **more, **spec})
        self.point(queue, at=queue)

    def make_priority_class(self, name: str, value: int) -> None:
        """A WorkloadPriorityClass, which stays for other tests."""
        body: JsonObject = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        self.world.plane.apply({**body, "value": value})

    def point(self, queue: str, *, at: str) -> None:
        """A LocalQueue in front of a ClusterQueue."""
        body: JsonObject = {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": queue, "namespace": self.world.namespace},
            "spec": {"clusterQueue": f"{self.prefix}-{at}"},
        }
        self.world.apply(body)

    def await_active(self, queue: str) -> None:
        """Wait until the ClusterQueue admits jobs."""

        def active() -> None:
            found = self.world.api.request("GET", self._cluster_queue(queue))
            states = [each.get("status") for each in objects(dig(found, "status", "conditions"))]
            assert states == ["True"], found

        eventually(active)

    def stop(self, queue: str, policy: str) -> None:
        """Set the ClusterQueue's stop policy: None, Hold or HoldAndDrain."""
        self.world.api.request("PATCH", self._cluster_queue(queue), {"spec": {"stopPolicy": policy}})

    def used(self, queue: str) -> int:
        """How many CPUs of the ClusterQueue Kueue counts as taken."""
        status = self.world.api.request("GET", self._cluster_queue(queue))
        usage = objects(dig(status, "status", "flavorsReservation"))
        return sum(int(text(each.get("total"))) for flavor in usage for each in objects(flavor.get("resources")))

    def await_used(self, queue: str, cpus: int) -> None:
        """Wait until this number of CPUs is taken."""
        eventually_equal(lambda: self.used(queue), cpus)

    def _cluster_queue(self, queue: str) -> str:
        return f"{KUEUE}/clusterqueues/{self.prefix}-{queue}"

    def delete(self) -> None:
        """Delete what belongs to no namespace."""
        for kind, name in reversed(self._made):
            self.world.api.request("DELETE", f"{KUEUE}/{_CLUSTER_WIDE[kind]}/{name}")

    def flavor(self) -> str:
        """The name of the ResourceFlavor of all queues of the test, which is made if it is not there."""
        name = f"{self.prefix}-flavor"
        if ("ResourceFlavor", name) not in self._made:
            self.create("ResourceFlavor", "flavor", {})
        return name

    def create(self, kind: str, name: str, spec: JsonObject) -> str:
        """Create an object of Kueue's that belongs to no namespace; its full name."""
        full = f"{self.prefix}-{name}"
        body: JsonObject = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": full}, "spec": spec}
        self.world.plane.apply(body)
        if (kind, full) not in self._made:
            self._made.append((kind, full))
        return full

    def answer_check(self, check: str, *, workload: str = "", **answer: JsonValue) -> None:
        """What the controller of an admission check reports: that it works or, of a Workload, that it is ready."""
        now = format_time(datetime.now(UTC))
        if not workload:
            active: JsonObject = {"type": "Active", "status": "True", "reason": "Test", "message": ""}
            path, status = f"admissionchecks/{check}", {"conditions": [{**active, "lastTransitionTime": now}]}
        else:
            path = f"namespaces/{self.world.namespace}/workloads/{workload}"
            state: JsonObject = {"name": check, "state": "Ready", "message": "", "lastTransitionTime": now, **answer}
            status = {"admissionChecks": [state]}
        self.world.api.request("PATCH", f"{KUEUE}/{path}/status", {"status": status})

    # -- jobs and their Workloads ----------------------------------------------------------------------------------

    def submit(self, name: str = "digits", *, queue: str = "gpus", workers: int = 2, **more: object) -> Job:
        """A job in a queue, each of whose pods needs one CPU."""
        scheduling = {"gang": "Kueue", "queue": queue}
        given = more.pop("scheduling", {})
        assert isinstance(given, dict)
        policy = more.pop("runPolicy", {})
        assert isinstance(policy, dict)
        template = more.pop("template", ONE_CPU)
        others = more.pop("roles", {})
        assert isinstance(others, dict)
        return self.world.submit(
            name,
            roles={**others, "worker": workers},
            template=template,
            runPolicy={**policy, "scheduling": {**scheduling, **given}},
            **more,
        )

    def submit_labelled(
        self, labels: JsonObject, name: str = "digits", *, annotations: JsonObject | None = None
    ) -> None:
        """A job of two pods that names its queue by Kueue's label alone."""
        body = manifest(name, template=ONE_CPU)
        self.world.apply({**body, "metadata": {"name": name, "labels": labels, "annotations": annotations or {}}})

    def run(self, name: str = "digits", *, suffix: str = "", workers: int = 2) -> None:
        """Wait for the pods of a job, have them run, and wait until the job does."""
        self.world.await_running(*(f"worker-{index}{suffix}" for index in range(workers)), name=name)

    def workload(self, name: str = "digits") -> JsonObject | None:
        """The Workload of a job, which has its name or is owned by it; None if there is none."""
        ways = (("metadata", "name"), ("metadata", "ownerReferences", 0, "name"))
        found = objects(self.world.api.request("GET", self._workloads).get("items"))
        return next((each for each in found if name in (dig(each, *way) for way in ways)), None)

    def change(self, spec: JsonObject, name: str = "digits") -> None:
        """Merge into the spec of a Workload."""
        self.world.api.request("PATCH", f"{self._workloads}/{name}", {"spec": spec})

    @property
    def _workloads(self) -> str:
        return f"{KUEUE}/namespaces/{self.world.namespace}/workloads"

    def conditions(self, name: str = "digits") -> dict[str, str]:
        """Status and reason of each condition of a Workload, such as "True/Started", by type."""
        found = self.workload(name) or {}
        return {
            text(each.get("type")): f"{text(each.get('status'))}/{text(each.get('reason'))}"
            for each in objects(dig(found, "status", "conditions"))
        }

    def await_message(self, kind: str, words: str, name: str = "digits") -> None:
        """Wait until the message of this condition of the Workload contains these words.

        The job reports the first ones at once, and then only once a minute if nothing else changes.
        """

        def reported() -> None:
            found = objects(dig(self.workload(name) or {}, "status", "conditions"))
            assert any(words in text(each.get("message")) for each in found if each.get("type") == kind), found

        eventually(reported)

    def await_condition(self, kind: str, wanted: str, name: str = "digits") -> None:
        """Wait until a condition of the Workload is this, such as "True/Started" (or "True" for any reason)."""

        def reached() -> None:
            now = self.conditions(name)
            assert now.get(kind, "none").startswith(wanted), f"{kind} is not {wanted}: {now}"

        eventually(reached)
