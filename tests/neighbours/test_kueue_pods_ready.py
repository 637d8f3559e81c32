"""Kueue takes back the quota of a job whose pods do not become ready in time, and leaves a job alone that runs."""

from __future__ import annotations

import contextlib

import pytest

from support.kueue_queues import Queues
from testbed import ApiError, ControlPlane, runs
from testbed.kueue import Kueue, Limits

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="class")
def cluster(own_control_plane: ControlPlane) -> ControlPlane:
    """In place of the shared cluster, whose Kueue waits longer than any test."""
    return own_control_plane


@pytest.fixture(scope="class")
def kueue(cluster: ControlPlane) -> Kueue:
    """A Kueue that waits for pods for seconds where the default is minutes."""
    kueue = Kueue(cluster)
    with runs.launching():
        kueue.install()
        kueue.start(Limits(ready=20, backoff=8))
    return kueue


def await_ready(queues: Queues, reason: str, name: str = "digits") -> None:
    """Have all pods of a job run until Kueue says so. On a slow machine it may evict the job some times before."""

    def ready() -> None:
        with contextlib.suppress(ApiError):  # a pod that Kueue has evicted meanwhile
            queues.world.run_pods(name)
        assert queues.conditions(name).get("PodsReady") == f"True/{reason}"

    queues.world.eventually(ready)


class TestPodsReady:
    def test_a_job_that_runs_is_not_evicted_when_its_time_to_get_ready_is_over(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit("runs")
        await_ready(queues, "Started", "runs")
        queues.world.await_state("Running", "runs")
        pods = set(queues.world.pods("runs"))
        queues.submit("waits")
        queues.await_condition("PodsReady", "False/WaitForStart", "waits")
        queues.await_condition("Evicted", "True/PodsReadyTimeout", "waits")
        assert not queues.conditions("runs").get("Evicted", "").startswith("True"), "it was admitted before the other"
        assert queues.world.job("runs").status.state == "Running"
        assert set(queues.world.pods("runs")) == pods

    def test_a_job_that_was_evicted_waits_until_its_back_off_is_over(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        queues.submit()
        queues.await_condition("Evicted", "True/PodsReadyTimeout")
        queues.world.await_pods([])
        queues.await_condition("Requeued", "False/PodsReadyTimeout")
        queues.await_used("gpus", 0)
        queues.await_condition("Requeued", "True/BackoffFinished")
        await_ready(queues, "Started")
        queues.world.await_state("Running")
        assert queues.world.job().status.restarts.total == 0

    def test_a_lost_pod_has_a_time_of_its_own_to_recover(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit(workers=2, strategy="ParameterServer", roles={"chief": 1, "ps": 1})
        await_ready(queues, "Started")
        [lost] = [pod for pod in queues.world.pods() if "-worker-1" in pod]
        queues.world.end_pod(lost, exit_code=137)
        queues.await_condition("PodsReady", "False/WaitForRecovery")
        queues.world.eventually(lambda: _is_replaced(queues, lost))
        await_ready(queues, "Recovered")


def _is_replaced(queues: Queues, lost: str) -> None:
    assert [pod for pod in queues.world.pods() if "-worker-1" in pod and pod != lost]
