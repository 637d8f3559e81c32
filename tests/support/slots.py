"""Nodes with few places, for tests of real schedulers. No kubelet is needed where pods are only bound."""

from __future__ import annotations

from pydantic import JsonValue

from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from support.job_world import JobWorld
from support.waiting import eventually_equal
from testbed import ControlPlane

SLOT = "example.com/slot"
"""A resource that only these nodes have."""


class Slots:
    """A node with room for a number of pods that request a slot."""

    def __init__(self, plane: ControlPlane, name: str, *, group: str = "", labels: JsonObject | None = None) -> None:
        """`group` is the label by which pods choose between nodes; by default the node's name."""
        self._api = plane.api
        self.name = name
        self._group = group or name
        self._labels = labels or {}

    def create(self, number: int) -> None:
        amounts = {"cpu": "32", "memory": "64Gi", "pods": "110", SLOT: str(number)}
        taints: list[JsonValue] = [{"key": SLOT, "effect": "NoSchedule"}]
        ready: list[JsonValue] = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {"slots": self._group, **self._labels}},
            "spec": {"taints": taints},
            "status": {"capacity": {**amounts}, "allocatable": {**amounts}, "conditions": ready},
        }
        self._api.request("POST", "/api/v1/nodes", body)

    def grow(self, number: int) -> None:
        amounts = {"capacity": {SLOT: str(number)}, "allocatable": {SLOT: str(number)}}
        self._api.request("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": amounts})

    def delete(self) -> None:
        self._api.request("DELETE", f"/api/v1/nodes/{self.name}")

    @property
    def template(self) -> JsonObject:
        """Pods of which each needs a slot of this node, or of the nodes of its group."""
        container: JsonObject = {"name": "trainer", "image": "example/trainer:1", "resources": {"limits": {SLOT: "1"}}}
        return {
            "spec": {
                "nodeSelector": {"slots": self._group},
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            }
        }


def bound(world: JobWorld, job: str = "digits") -> list[str]:
    """The job's pods that have a node."""
    return [name for name, pod in world.pods(job).items() if dig(pod, "spec", "nodeName")]


def await_bound(world: JobWorld, number: int, job: str = "digits") -> None:
    """Wait until this number of them have one."""
    eventually_equal(lambda: len(bound(world, job)), number)


def submit_eight_for_six_slots(world: JobWorld, slots: Slots, scheduling: JsonObject) -> None:
    """A job of eight pods on a node with room for six: none starts before there is room for all."""
    world.submit(roles={"worker": 8}, template=slots.template, runPolicy={"scheduling": scheduling})
    eventually_equal(lambda: world.condition(Condition.PODS_READY).reason, Reason.UNSCHEDULABLE)
    assert bound(world) == []
    slots.grow(8)
    await_bound(world, 8)
