"""What keeps pods from starting is reported in the job's status, in the words of who knows."""

from __future__ import annotations

from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Reason
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from support.waiting import eventually


def test_a_job_that_finds_no_node_says_so_in_the_schedulers_words(world: JobWorld, operator: OperatorProcess) -> None:
    before = world.pods_version()
    world.begin()

    def scheduler_message(pod: JsonObject) -> str | None:
        conditions = objects(dig(pod, "status", "conditions"))
        return next((text(each["message"]) for each in conditions if each["type"] == "PodScheduled"), None)

    def reported() -> None:
        """The words may change while nodes of other tests come and go."""
        ready = world.condition(Condition.PODS_READY)
        assert (ready.status, ready.reason) == ("False", Reason.UNSCHEDULABLE), ready
        pod = world.get("pods", "digits-worker-0")
        assert pod is not None
        assert ready.message == f"0 of 2 pods are ready; digits-worker-0: {scheduler_message(pod)}"

    eventually(reported)
    status = world.job().status
    assert (status.state, status.reason) == ("Starting", Reason.UNSCHEDULABLE)

    def event() -> None:
        """Of some words of the scheduler. Its own events do not hold all of them: they keep the first of a series."""
        (found,) = world.events(Reason.UNSCHEDULABLE)
        words = [scheduler_message(pod) for pod in world.pod_states("digits-worker-0", since=before)]
        assert found["type"] == "Warning"
        assert found["note"] in [f"0 of 2 pods are ready; digits-worker-0: {each}" for each in words]

    eventually(event)
    world.run_pods()
    world.await_state("Running")
