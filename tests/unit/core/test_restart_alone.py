"""Replicas that come back alone, where nobody else need start again."""

from __future__ import annotations

import pytest

from dtj.core.observed import Phase
from support.pod_environment import environment_of
from world import live, running


class TestTrainingInOneProcess:
    @pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored", "CentralStorage"])
    @pytest.mark.parametrize("role", ["chief", "worker"])
    def test_the_pod_comes_back_alone_and_the_evaluator_goes_on(self, strategy: str, role: str) -> None:
        world = running(strategy=strategy, roles={role: 1, "evaluator": 1})
        evaluator = world.pods["digits-evaluator-0"].uid
        world.loses(f"{role}-0")
        assert f"digits-{role}-0-r1" not in world.pods, "two pods must not write the same checkpoints"
        world.finish_deletions()
        world.settle()
        assert (world.job.status.attempt, world.job.status.restarts.disruption) == (1, 1)
        assert live(world) == {f"digits-{role}-0-r1", "digits-evaluator-0"}
        assert world.pods["digits-evaluator-0"].uid == evaluator


class TestCollectivesThatAreMendedPodByPod:
    """``restartScope: Pod``: the others hold in their launchers, and meet the new pod under the old address."""

    def test_the_lost_worker_alone_is_replaced_in_the_same_attempt(self) -> None:
        world = running(roles={"worker": 3}, restartScope="Pod")
        world.loses("worker-1")
        assert "digits-worker-1-r1" not in world.pods, "two pods must not share an address"
        world.finish_deletions()
        world.settle()
        assert live(world) == {"digits-worker-0", "digits-worker-1-r1", "digits-worker-2"}
        status = world.job.status
        assert (status.attempt, status.restarts.disruption, status.restarts.total) == (1, 1, 1)
        new, old = (environment_of(world.manifests[name]) for name in ("digits-worker-1-r1", "digits-worker-0"))
        assert new["DTJ_ATTEMPT"] == old["DTJ_ATTEMPT"] == "1"
        assert new["DTJ_RESTART_SCOPE"] == old["DTJ_RESTART_SCOPE"] == "Pod"

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
