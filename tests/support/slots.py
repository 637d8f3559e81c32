"""Nodes with few places, for tests of real schedulers. No kubelet is needed where pods are only bound."""

from __future__ import annotations

from pydantic import JsonValue

from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from support.job_world import JobWorld
from support.waiting import eventually_equal
from testbed import ControlPlane
from testbed.rest import RestClient

SLOT = "example.com/slot"
"""A resource that only these nodes have."""


def make_node(api: RestClient, name: str, amounts: JsonObject, *, labels: JsonObject, taint: str) -> None:
    """A node that is ready. It has this taint alone: the API server gives a new node one that nobody takes off here."""
    ready: list[JsonValue] = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    body: JsonObject = {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": {**amounts}, "allocatable": {**amounts}, "conditions": ready},
    }
    api.request("POST", "/api/v1/nodes", body)
    api.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}})


class Slots:
    """A node with room for a number of pods that request a slot."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._api = plane.api
        self.name = name

    def create(self, number: int) -> None:
        amounts: JsonObject = {"cpu": "32", "memory": "64Gi", "pods": "110", SLOT: str(number)}
        make_node(self._api, self.name, amounts, labels={"slots": self.name}, taint=SLOT)

    def grow(self, number: int) -> None:
        amounts = {"capacity": {SLOT: str(number)}, "allocatable": {SLOT: str(number)}}
        self._api.request("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": amounts})

    def delete(self) -> None:
        self._api.request("DELETE", f"/api/v1/nodes/{self.name}")

    @property
    def template(self) -> JsonObject:
        """Pods of which each needs a slot of this node."""
        container: JsonObject = {"name": "trainer", "image": "example/trainer:1", "resources": {"limits": {SLOT: "1"}}}
        return {
            "spec": {
                "nodeSelector": {"slots": self.name},
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            }
        }


def bound(world: JobWorld) -> list[str]:
    """The job's pods that have a node."""
    return [name for name, pod in world.pods().items() if dig(pod, "spec", "nodeName")]


def await_bound(world: JobWorld, number: int) -> None:
    """Wait until this number of them have one."""
    eventually_equal(lambda: len(bound(world)), number)


def submit_eight_for_six_slots(world: JobWorld, slots: Slots, scheduling: JsonObject) -> None:
    """A job of eight pods on a node with room for six: none starts before there is room for all."""
    world.submit(roles={"worker": 8}, template=slots.template, runPolicy={"scheduling": scheduling})
    eventually_equal(lambda: world.condition(Condition.PODS_READY).reason, Reason.UNSCHEDULABLE)
    assert bound(world) == []
    slots.grow(8)
    await_bound(world, 8)
