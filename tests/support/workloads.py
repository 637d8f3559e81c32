"""What happens to a job, as short stories; the operator may be killed in any of them."""

from __future__ import annotations

import time

from dtj.api.names import Condition
from support.restartable_cluster import RestartableCluster

WORKERS = {"worker": 2}


def worker_fails(world: RestartableCluster) -> None:
    """A worker fails, and all start again."""
    world.start(roles=WORKERS)
    world.run("worker-0", "worker-1")
    fail(world, "worker-1", exit_code=3)
    world.await_pods(["worker-1", "worker-0-r1", "worker-1-r1"])
    world.run_pods()
    world.await_state("Running")
    complete(world, "worker-0-r1")


def suspend_and_resume(world: RestartableCluster) -> None:
    """A job is suspended while it runs, is resumed, and completes."""
    world.start(roles=WORKERS)
    world.run("worker-0", "worker-1")
    world.change_spec({"runPolicy": {"suspend": True}})
    world.await_state("Suspended")
    world.await_pods([])
    world.eventually(lambda: none_left(world))
    world.change_spec({"runPolicy": {"suspend": False}})
    world.run("worker-0-r1", "worker-1-r1")
    complete(world, "worker-0-r1")


WORKLOADS = {
    "worker-fails": worker_fails,
    "suspend-and-resume": suspend_and_resume,
}


def complete(world: RestartableCluster, replica: str) -> None:
    """This replica's success is the job's; its peers are stopped, and its Service goes."""
    world.end_pod(f"digits-{replica}", exit_code=0)
    world.await_condition(Condition.COMPLETE)
    world.eventually(lambda: none_left(world))


def fail(world: RestartableCluster, replica: str, *, exit_code: int) -> None:
    """A replica fails, early in a second.

    Times in the API are whole seconds: late in one, a backoff of a second would be over before it is seen, and a run
    would have a write less.
    """
    time.sleep(-time.time() % 1.0)
    world.end_pod(f"digits-{replica}", exit_code=exit_code, message="lost my way")


def none_left(world: RestartableCluster) -> None:
    assert world.services() == {}, "the Service is still there"
    assert world.config_maps() == {}, "the ConfigMap is still there"
