"""Jobs whose number of workers changes while they run: one new attempt, the same list of workers everywhere."""

from __future__ import annotations

import json

import pytest

from dtj.core.observed import Phase
from support.elastic_world import elastic
from support.pod_environment import environment_of
from world import World, live, running


def lists_of_workers(world: World) -> set[int]:
    """How many workers the living pods know."""
    configs = [json.loads(environment_of(world.manifests[name])["TF_CONFIG"]) for name in live(world)]
    return {len(config["cluster"]["worker"]) for config in configs}


@pytest.mark.parametrize("wanted", [1, 3, 4])
def test_all_start_again_with_the_new_number_of_workers(wanted: int) -> None:
    world = running(elastic(2, chief=1))
    world.becomes(elastic(wanted, chief=1))
    assert world.job.status.attempt == 2
    assert live(world) == {"digits-chief-0-r1", *(f"digits-worker-{i}-r1" for i in range(wanted))}
    assert lists_of_workers(world) == {wanted}
    assert world.job.status.replica_statuses["worker"].desired == wanted
    assert world.job.status.selector == "training.dtj.dev/job-name=digits,training.dtj.dev/role=worker"


def test_pods_that_end_because_of_it_are_no_failure() -> None:
    world = running(elastic(3))
    world.becomes(elastic(2))
    for name in ("worker-0", "worker-1", "worker-2"):
        world.set_pod(name, Phase.FAILED, exit_code=1)
    world.settle_deletions()
    world.all_run()
    assert (world.job.status.attempt, world.job.status.state) == (2, "Running")


def test_a_job_that_was_scaled_while_its_first_pods_were_made_has_no_two_lists() -> None:
    """The operator dies after the first pod, and finds another number when it is back."""
    world = World(elastic(2))
    world.step()  # asks the API server whether it would take the pods
    world.step()
    world.remove("worker-1")
    world.becomes(elastic(3))
    assert lists_of_workers(world) == {3}
    assert live(world) == {f"digits-worker-{i}-r1" for i in range(3)}


def test_scaling_twice_in_a_hurry_makes_one_attempt_after_the_other() -> None:
    world = running(elastic(2))
    world.becomes(elastic(3))
    world.becomes(elastic(4))
    assert world.job.status.attempt == 2
    assert world.job.status.replica_statuses["worker"].desired == 3
    world.wait(10)
    assert world.job.status.attempt == 3
    assert world.job.status.replica_statuses["worker"].desired == 4
