"""Kueue takes back the quota of a job whose pods do not become ready in time, and leaves a job alone that runs."""

from __future__ import annotations

import pytest

from support.kueue_queues import Queues

pytestmark = [pytest.mark.neighbours, pytest.mark.usefixtures("operator")]


class TestPodsReady:
    def test_a_job_that_runs_is_not_evicted_when_its_time_to_get_ready_is_over(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit("runs")
        queues.run("runs")
        queues.await_condition("PodsReady", "True/Started", "runs")
        queues.submit("waits")
        queues.world.await_pods(["worker-0", "worker-1"], "waits")
        queues.await_condition("PodsReady", "False/WaitForStart", "waits")
        queues.await_condition("Evicted", "True/PodsReadyTimeout", "waits")
        assert "Evicted" not in queues.conditions("runs"), "it was admitted before the other"
        assert queues.world.job("runs").status.state == "Running"

    def test_a_job_that_was_evicted_waits_until_its_back_off_is_over(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        queues.submit()
        queues.await_condition("Evicted", "True/PodsReadyTimeout")
        queues.world.await_pods([])
        queues.await_condition("Requeued", "False/PodsReadyTimeout")
        queues.await_used("gpus", 0)
        queues.await_condition("Requeued", "True/BackoffFinished")
        queues.run(suffix="-r1")
        queues.await_condition("PodsReady", "True/Started")
        assert queues.world.job().status.restarts.total == 0

    def test_a_lost_pod_has_a_time_of_its_own_to_recover(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit(workers=2, strategy="ParameterServer", roles={"chief": 1, "ps": 1})
        world = queues.world
        world.await_pods(["chief-0", "ps-0", "worker-0", "worker-1"])
        world.run_pods()
        queues.await_condition("PodsReady", "True/Started")
        world.end_pod("digits-worker-1", exit_code=137)
        queues.await_condition("PodsReady", "False/WaitForRecovery")
        world.eventually(lambda: _has(queues, "digits-worker-1-r1"))
        world.run_pods()
        queues.await_condition("PodsReady", "True/Recovered")


def _has(queues: Queues, pod: str) -> None:
    assert pod in queues.world.pods()
