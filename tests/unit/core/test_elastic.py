"""Jobs whose number of workers changes while they run: one new attempt, the same list of workers everywhere."""

from __future__ import annotations

import json

import pytest

from builders import job
from dtj.api.job import Job
from dtj.api.json import dig, objects
from dtj.core.observed import Phase
from world import World, running

BOUNDS = {"minReplicas": 1, "maxReplicas": 4}


def elastic(workers: int, *, strategy: str = "MultiWorkerMirrored", **others: int) -> Job:
    return job(strategy=strategy, roles={**others, "worker": workers}, elastic=BOUNDS)


def living(world: World) -> set[str]:
    return {name.removeprefix("digits-") for name, pod in world.pods.items() if not pod.terminating}


def list_of_workers(world: World, pod: str) -> int:
    (container,) = objects(dig(world.manifests[pod], "spec", "containers"))
    (config,) = (v["value"] for v in objects(container["env"]) if v["name"] == "TF_CONFIG")
    return len(json.loads(str(config))["cluster"]["worker"])


@pytest.mark.parametrize("wanted", [1, 3, 4])
def test_all_start_again_with_the_new_number_of_workers(wanted: int) -> None:
    world = running(elastic(2, chief=1))
    world.becomes(elastic(wanted, chief=1))
    assert world.job.status.attempt == 2
    assert living(world) == {"chief-0-r1", *(f"worker-{i}-r1" for i in range(wanted))}
    assert {list_of_workers(world, f"digits-{name}") for name in living(world)} == {wanted}
    assert world.job.status.replica_statuses["worker"].desired == wanted
    assert world.job.status.selector == "training.dtj.dev/job-name=digits,training.dtj.dev/role=worker"


def test_pods_that_end_because_of_it_are_no_failure() -> None:
    world = running(elastic(3))
    world.becomes(elastic(2))
    for name in ("worker-0", "worker-1", "worker-2"):
        world.set_pod(name, Phase.FAILED, exit_code=1)
    world.settle()
    world.finish_deletions()
    world.all_run()
    assert (world.job.status.attempt, world.job.status.state) == (2, "Running")


def test_a_job_that_was_scaled_while_its_first_pods_were_made_has_no_two_lists() -> None:
    """The operator dies after the first pod, and finds another number when it is back."""
    world = World(elastic(2))
    world.step()  # asks the API server whether it would take the pods
    world.step()
    world.remove("worker-1")
    world.becomes(elastic(3))
    assert {list_of_workers(world, f"digits-{name}") for name in living(world)} == {3}
    assert living(world) == {"worker-0-r1", "worker-1-r1", "worker-2-r1"}


def test_scaling_twice_in_a_hurry_makes_one_attempt_after_the_other() -> None:
    world = running(elastic(2))
    world.becomes(elastic(3))
    world.becomes(elastic(4))
    assert world.job.status.attempt == 2
    assert world.job.status.replica_statuses["worker"].desired == 3
    world.wait(10)
    assert world.job.status.attempt == 3
    assert world.job.status.replica_statuses["worker"].desired == 4
