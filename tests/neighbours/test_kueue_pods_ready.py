"""Kueue takes back the quota of a job whose pods do not become ready in time, and leaves a job alone that runs."""

from __future__ import annotations

import pytest

from support.kueue_queues import Queues

pytestmark = [pytest.mark.neighbours, pytest.mark.usefixtures("operator")]


class TestPodsReady:
    def test_a_job_is_admitted_and_runs(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        queues.submit()
        queues.run()
        queues.await_used("gpus", 2)

    def test_a_job_whose_pods_never_get_ready_is_evicted(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        queues.submit()
        queues.world.await_pods(["worker-0", "worker-1"])
        queues.await_condition("Evicted", "True/PodsReadyTimeout")
        queues.await_used("gpus", 0)
