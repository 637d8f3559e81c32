"""No restart is free for ever: the infrastructure is believed where a pod was lost, or where the training goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from dtj.core.policies.free_restarts import FREE_IN_A_ROW
from world import World, running

TWO = {"worker": 2}


def workers(world: World) -> list[str]:
    """The pods of both workers in this attempt, without the name of the job."""
    return sorted(name.removeprefix("digits-") for name, pod in world.pods.items() if pod.phase is Phase.RUNNING)


def lose_each_other(world: World, code: int = 75) -> None:
    """Both workers leave with this code, and all that follows happens."""
    for name in workers(world):
        world.set_pod(name, Phase.FAILED, exit_code=code, message="peer lost: worker 1 not reachable")
        pod = world.pods[f"digits-{name}"]
        assert pod.termination is not None
        ran = replace(pod.termination, started_at=world.now - timedelta(seconds=40))
        world.pods[f"digits-{name}"] = replace(pod, termination=ran)
    world.settle()
    for seconds in (6.0, 11.0, 61.0):
        world.wait(seconds)
    world.all_run()


@pytest.mark.parametrize("code", [75, 42, 143])
def test_ends_that_only_say_that_the_infrastructure_caused_them_are_free_three_times_in_a_row(code: int) -> None:
    world = running(roles=TWO, backoffLimit=2)
    for _ in range(FREE_IN_A_ROW):
        world.advance(40)  # so long has a pod run whose 42 or 143 is believed
        lose_each_other(world, code)
    status = world.job.status
    assert (status.restarts.user, status.restarts.total) == (0, FREE_IN_A_ROW)
    for _ in range(3):
        world.advance(40)
        lose_each_other(world, code)
    status = world.job.status
    assert world.is_true(Condition.FAILED) or world.is_true(Condition.FAILURE_TARGET)
    assert (status.restarts.user, status.restarts.total) == (2, FREE_IN_A_ROW + 2)
    target = world.condition(Condition.FAILURE_TARGET)
    assert target.reason == Reason.BACKOFF_LIMIT_EXCEEDED
    assert "restart 4 in a row without a lost pod or a new step, so it counts as an error" in target.message
    assert status.root_cause is not None
    assert status.root_cause.message == "peer lost: worker 1 not reachable"


def test_the_condition_says_while_it_repeats_that_nothing_explains_the_restarts() -> None:
    world = running(roles=TWO)
    lose_each_other(world)
    for name in workers(world):
        world.set_pod(name, Phase.FAILED, exit_code=75)
    world.settle()
    world.wait(6)
    assert "it is restart 2 in a row without a lost pod or a new step" in world.condition(Condition.RESTARTING).message


def test_a_training_that_goes_on_in_between_is_restarted_without_a_limit() -> None:
    world = running(roles=TWO, backoffLimit=0)
    for step in range(10, 100, 10):
        world.hears(workers(world)[0], step=step, total_steps=100)
        lose_each_other(world)
    assert world.job.status.restarts.disruption == 9
    assert world.job.status.restarts_without_evidence == 0


def test_pods_that_are_taken_away_are_evidence() -> None:
    world = running(roles=TWO, backoffLimit=0)
    for _ in range(6):
        first, second = workers(world)
        world.take_away(second)
        world.sees(first, Phase.FAILED, exit_code=75)
        for seconds in (6.0, 11.0):
            world.finish_deletions()
            world.wait(seconds)
        world.all_run()
    assert world.job.status.restarts.disruption == 6
    assert not world.is_true(Condition.FAILURE_TARGET)


def test_a_peer_that_has_completed_is_not_lost() -> None:
    world = running(roles=TWO, backoffLimit=0)
    world.sees("worker-1", Phase.SUCCEEDED, exit_code=0)
    world.sees("worker-0", Phase.FAILED, exit_code=75, message="peer lost: worker 1 not reachable")
    world.wait(6)
    assert (
        "worker-1 has completed while worker-0 waits for it: all workers must make the same calls"
        in world.condition(Condition.FAILURE_TARGET).message
    )
