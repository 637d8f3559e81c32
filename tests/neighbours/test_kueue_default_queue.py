"""The default LocalQueue of a namespace, as the real Kueue serves jobs that name no queue."""

from __future__ import annotations

import pytest

from dtj.api.json import dig
from support.kueue_queues import ONE_CPU, Queues

pytestmark = pytest.mark.usefixtures("operator")


def test_jobs_that_name_no_queue_share_the_quota_of_the_default_one(queues: Queues) -> None:
    world = queues.world
    queues.make("default", cpus=2)
    world.submit("first", roles={"worker": 2}, template=ONE_CPU)
    queues.run("first")
    assert world.job("first").status.queue == "default"
    assert dig(queues.workload("first") or {}, "spec", "queueName") == "default"
    queues.await_used("default", 2)

    world.submit("second", roles={"worker": 2}, template=ONE_CPU)
    world.await_state("Suspended", "second")
    queues.await_message("QuotaReserved", "insufficient", "second")
    assert not world.pods("second")

    world.end_pod("first-worker-0", exit_code=0)
    world.await_state("Succeeded", "first")
    queues.run("second")


def test_without_a_default_queue_a_job_starts_outside_of_kueue(queues: Queues) -> None:
    world = queues.world
    queues.make("team-a", cpus=1)
    world.submit(roles={"worker": 2}, template=ONE_CPU)
    queues.run()
    assert queues.workload() is None
    queues.make("default", cpus=1)
    world.annotate({"a": "b"})
    world.end_pod("digits-worker-0", exit_code=0)
    world.await_state("Succeeded")
    assert queues.workload() is None
    assert not world.job().status.queue
