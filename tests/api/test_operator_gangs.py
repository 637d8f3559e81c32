"""All pods of a job or none, on a real API server.

Volcano, the scheduler plugins and Kueue are stand-ins: their APIs are served, and the tests say what they would say.
tests/neighbours has the real schedulers.
"""

from __future__ import annotations

import json

import pytest

from builders import manifest, priority_class
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from support import gang_schedulers
from support.gang_schedulers import KUEUE, Groups
from support.job_world import JobWorld
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


def test_pods_that_a_quota_leaves_room_for_give_it_back_until_all_fit(world: JobWorld) -> None:
    gang_schedulers.install(world.plane)
    quota: JsonObject = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    world.create("resourcequotas", quota)
    world.submit(roles={"worker": 3}, runPolicy={"scheduling": {"gang": "Volcano"}})

    def released() -> None:
        assert world.events(Reason.GANG_RELEASED)

    eventually(released)
    more = json.dumps({"spec": {"hard": {"pods": "3"}}})
    world.plane.kubectl("patch", "resourcequota", "few", "-n", world.namespace, "--type=merge", f"--patch={more}")
    world.await_pods(["worker-0", "worker-1", "worker-2"])
    assert world.job().status.restarts.total == 0


def test_a_flavor_that_the_operator_may_not_read_is_reported_in_the_status(world: JobWorld) -> None:
    """This operator has rights in its namespace only, and flavors belong to the cluster."""
    gang_schedulers.install(world.plane)
    world.plane.apply(priority_class("urgent"))
    scheduling = {"gang": "Kueue", "queue": "team-a", "priorityClassName": "urgent"}
    world.apply(manifest(roles={"worker": 1}, runPolicy={"scheduling": scheduling}))
    workloads = Groups(world, KUEUE, "workloads")
    workload = workloads.await_one()
    (pod_set,) = objects(dig(workload, "spec", "podSets"))
    assert (pod_set["name"], pod_set["count"]) == ("worker", 1)
    assert dig(workload, "spec", "queueName") == "team-a"
    assert dig(workload, "spec", "priority") == 1000, "what the cluster makes of the class's name"
    workloads.admit(flavor="spot")

    def is_reported() -> None:
        condition = world.condition(Condition.PODS_READY)
        assert condition.message.startswith("resourceflavor spot: ")

    eventually(is_reported)
    assert world.pods() == {}
