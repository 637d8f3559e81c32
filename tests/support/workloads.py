"""What happens to a job, as short stories; the operator may be killed in any of them."""

from __future__ import annotations

import time

from dtj.api.json import dig
from dtj.api.names import Condition
from support.restartable_cluster import RestartableCluster

WORKERS = {"worker": 2}


def create_to_complete(world: RestartableCluster) -> None:
    """A job runs, and completes."""
    world.start(roles=WORKERS)
    world.run("worker-0", "worker-1")
    complete(world, "worker-0")


def worker_fails(world: RestartableCluster) -> None:
    """A worker fails, and all start again."""
    world.start(roles=WORKERS)
    world.run("worker-0", "worker-1")
    fail(world, "worker-1", exit_code=3)
    world.await_pods(["worker-1", "worker-0-r1", "worker-1-r1"])
    world.run_pods()
    world.await_state("Running")
    complete(world, "worker-0-r1")


def chief_fails_for_good(world: RestartableCluster) -> None:
    """The chief fails, and no restart is left."""
    world.start(roles={"chief": 1, "worker": 1}, runPolicy={"backoffLimit": 0})
    world.run("chief-0", "worker-0")
    fail(world, "chief-0", exit_code=1)
    world.await_condition(Condition.FAILED)
    world.eventually(lambda: none_left(world))


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


def delete_and_create_again(world: RestartableCluster) -> None:
    """A job that runs is deleted, and another of the same name created at once."""
    world.start(roles=WORKERS)
    world.run("worker-0", "worker-1")
    world.delete_job()
    second = world.start(roles=WORKERS)

    def are_of_the_second() -> None:
        owners = [dig(pod, "metadata", "ownerReferences", 0, "uid") for pod in world.pods().values()]
        assert owners == [second.uid] * 2, f"the pods are those of {owners}, not of {second.uid}"

    world.eventually(are_of_the_second)
    world.run("worker-0", "worker-1")
    complete(world, "worker-0")


WORKLOADS = {
    "create-to-complete": create_to_complete,
    "worker-fails": worker_fails,
    "chief-fails-for-good": chief_fails_for_good,
    "suspend-and-resume": suspend_and_resume,
    "delete-and-create-again": delete_and_create_again,
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
