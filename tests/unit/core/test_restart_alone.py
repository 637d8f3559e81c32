"""Replicas that come back alone, where nobody else need start again."""

from __future__ import annotations

from typing import Final

import pytest

from dtj.api.json import dig
from dtj.api.status import RestartCounts
from dtj.core.observed import Phase
from support.pod_environment import environment_of
from world import live, running

PS: Final = {"chief": 1, "worker": 2, "ps": 1}
DATA: Final = {"worker": 2, "dispatcher": 1, "data-worker": 2}
POD: Final = {"restartScope": "Pod"}
ALONE: Final = {
    "a worker of parameter servers": ("ParameterServer", PS, {}, "worker-1"),
    "a chief, to servers that live on": ("ParameterServer", PS, {}, "chief-0"),
    "one device": ("OneDevice", {"worker": 1, "evaluator": 1}, {}, "worker-0"),
    "a chief with several devices": ("Mirrored", {"chief": 1, "evaluator": 1}, {}, "chief-0"),
    "variables in central storage": ("CentralStorage", {"worker": 1, "evaluator": 1}, {}, "worker-0"),
    "an evaluator": ("MultiWorkerMirrored", {"worker": 2, "evaluator": 1}, {}, "evaluator-0"),
    "a dispatcher of data": ("MultiWorkerMirrored", DATA, {}, "dispatcher-0"),
    "a worker of the data service": ("MultiWorkerMirrored", DATA, {}, "data-worker-1"),
    "a member of a collective that is mended pod by pod": ("MultiWorkerMirrored", {"worker": 3}, POD, "worker-1"),
}


@pytest.mark.parametrize(("strategy", "roles", "policy", "lost"), ALONE.values(), ids=ALONE)
def test_it_comes_back_alone_at_the_infrastructures_cost_once_its_address_is_free(
    strategy: str, roles: dict[str, int], policy: dict[str, str], lost: str
) -> None:
    world = running(strategy=strategy, roles=roles, **policy)  # type: ignore[arg-type]
    others = {name: pod.uid for name, pod in world.pods.items() if name != f"digits-{lost}"}
    world.loses(lost)
    again = f"digits-{lost}-r1"
    assert again not in world.pods, "no two pods share an address, servers or checkpoints"
    world.settle_deletions()
    assert live(world) == {*others, again}
    assert {name: world.pods[name].uid for name in others} == others
    assert dig(world.manifests[again], "spec", "hostname") == lost
    assert environment_of(world.manifests[again]) == environment_of(world.manifests[f"digits-{lost}"])
    environment = environment_of(world.manifests[again])
    assert (environment["DTJ_ATTEMPT"], environment.get("DTJ_RESTART_SCOPE")) == ("1", policy.get("restartScope"))
    assert (world.job.status.attempt, world.job.status.restarts) == (1, RestartCounts(disruption=1, total=1))
    role, _, index = lost.rpartition("-")
    assert world.job.status.replica_statuses[role].restarts == {index: 1}


class TestCollectivesThatAreMendedPodByPod:
    """``restartScope: Pod``: the others hold in their launchers, and meet the new pod under the old address."""

    def test_survivors_that_gave_up_come_back_too_and_are_not_charged(self) -> None:
        world = running(roles={"worker": 3}, restartScope="Pod")
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        world.wait(1)
        world.run_all()
        world.advance(2)
        for survivor in ("worker-0", "worker-2"):
            world.set_pod(survivor, Phase.FAILED, exit_code=75)
        world.settle()
        world.wait(5)
        assert {name for name, pod in world.pods.items() if not pod.main_container_ended} == {
            "digits-worker-0-r1",
            "digits-worker-1-r1",
            "digits-worker-2-r1",
        }
        counts = world.job.status.restarts
        assert (world.job.status.attempt, counts.user, counts.disruption, counts.total) == (1, 1, 0, 1)

    def test_pods_that_only_lose_each_other_are_charged_once_a_round(self) -> None:
        world = running(roles={"worker": 2}, restartScope="Pod")
        for number in (1, 2, 3):
            for index in (0, 1):
                world.set_pod(f"worker-{index}" + f"-r{number - 1}" * (number > 1), Phase.FAILED, exit_code=75)
            world.settle()
            world.wait(5)
            world.run_all()
            world.advance(20)
            assert world.job.status.restarts.disruption == number

    def test_all_start_again_where_a_member_has_completed_that_one_alone_would_wait_for(self) -> None:
        world = running(roles={"chief": 1, "worker": 1}, restartScope="Pod")
        world.sees("worker-0", Phase.SUCCEEDED)
        world.set_pod("chief-0", Phase.FAILED, exit_code=137)
        world.wait(1)
        assert world.job.status.attempt == 2
        assert {"digits-chief-0-r1", "digits-worker-0-r1"} <= live(world)
