"""What keeps pods from starting is reported in the job's status, in the words of who knows."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from support.waiting import eventually

pytestmark = pytest.mark.api


def test_a_job_that_finds_no_node_says_so_in_the_schedulers_words(world: JobWorld, operator: OperatorProcess) -> None:
    world.submit()
    world.await_pods(["worker-0", "worker-1"])

    def reported() -> str:
        ready = world.job().status.condition(Condition.PODS_READY)
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", Reason.UNSCHEDULABLE), ready
        return ready.message

    def told_by_the_scheduler() -> str:
        """Which words these are follows from the nodes that other tests have made."""
        message = reported()
        pod = world.get("pods", "digits-worker-0")
        (scheduled,) = (one for one in objects(dig(pod, "status", "conditions")) if one["type"] == "PodScheduled")
        assert message == f"0 of 2 pods are ready; digits-worker-0: {scheduled['message']}"
        return message

    message = eventually(told_by_the_scheduler)
    status = world.job().status
    assert (status.state, status.reason) == ("Starting", Reason.UNSCHEDULABLE)

    def event() -> list[JsonObject]:
        found = world.events(Reason.UNSCHEDULABLE)
        assert [(one["type"], one["note"]) for one in found] == [("Warning", message)]
        return found

    eventually(event)
    world.run_pods()
    world.await_state("Running")
