"""Which pods are stopped and deleted: at the end of a job, before a new attempt, and when one hangs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import job
from dtj.api.names import Condition
from dtj.core.observed import Phase
from support.gang_worlds import VOLCANO
from world import World, running

NO_RETRY = {"backoffLimit": 0}


PS = {"chief": 1, "worker": 1, "ps": 1}


@pytest.mark.parametrize("ending", ["success", "failure"])
@pytest.mark.parametrize(
    ("policy", "kept"),
    [("Running", ["digits-worker-0"]), ("All", []), ("None", ["digits-worker-0", "digits-worker-1"])],
)
def test_clean_pod_policy_holds_for_every_ending(policy: str, kept: list[str], ending: str) -> None:
    world = running(runPolicy={"cleanPodPolicy": policy, **NO_RETRY})
    world.set_pod("worker-0", Phase.SUCCEEDED if ending == "success" else Phase.FAILED)
    world.settle_deletions()
    assert sorted(world.pods) == kept
    assert world.is_true(Condition.COMPLETE if ending == "success" else Condition.FAILED)


class TestPodsOfTheDead:
    def spot_preemptions(self, world: World, times: int) -> None:
        for _ in range(times):
            world.wait(900)
            there = sorted(
                name for name, found in world.pods.items() if not found.main_container_ended and not found.terminating
            )
            world.take_away(there[1].removeprefix("digits-"))
            world.step()
            for name in there:
                world.set_pod(name.removeprefix("digits-"), Phase.FAILED, exit_code=42)
            world.settle_deletions()
            world.all_run()

    def test_are_kept_where_they_failed_by_themselves_up_to_a_number(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.sees("worker-1", Phase.FAILED, exit_code=3)
        world.advance(5)
        world.start()
        self.spot_preemptions(world, 4)
        assert "digits-worker-1" in world.pods, "its log says why"

    def test_that_fail_forever_are_bounded_too(self) -> None:
        world = running(roles={"worker": 4}, backoffLimit=100)
        for number in range(12):
            suffix = f"-r{number}" if number else ""
            for index in range(4):
                world.set_pod(f"worker-{index}{suffix}", Phase.FAILED, exit_code=3)
            world.settle()
            world.wait(61)
            world.finish_deletions()
            world.all_run()
        assert world.job.status.attempt == 13
        assert len(world.pods) == 4 + 4 + 16


class TestAPodThatHangsOnADeadNode:
    def test_holds_no_success_up_forever(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.sees("chief-0", Phase.SUCCEEDED)
        world.remove("ps-0")
        world.settle()
        world.wait(59)
        assert not world.is_true(Condition.COMPLETE)
        world.wait(2)
        assert world.is_true(Condition.COMPLETE)
        assert "digits-worker-0" in world.condition(Condition.COMPLETE).message


def test_pods_that_have_ended_and_stay_for_a_finalizer_keep_neither_the_service_nor_the_group() -> None:
    policy: dict[str, object] = {"cleanPodPolicy": "All", "scheduling": {"gang": "Volcano"}}
    world = World(job(runPolicy=policy), installed=(VOLCANO,)).start()
    for name in ("worker-0", "worker-1"):
        world.set_pod(name, Phase.SUCCEEDED, exit_code=0)
    world.settle()
    assert all(pod.terminating for pod in world.pods.values())
    assert (len(world.pods), world.service, world.gang) == (2, None, None)


def test_a_pod_that_has_ended_and_cannot_be_deleted_holds_no_success_up() -> None:
    world = running(roles={"worker": 2}, runPolicy={"cleanPodPolicy": "All"})
    for name in ("worker-0", "worker-1"):
        world.set_pod(name, Phase.SUCCEEDED)
    world.settle()
    assert sorted(world.pods) == ["digits-worker-0", "digits-worker-1"], "nobody has let them go"
    assert world.is_true(Condition.COMPLETE)
    assert world.condition(Condition.COMPLETE).message == "worker-0 completed"


@pytest.mark.parametrize("hours", [0, 2, -2])
def test_a_pod_that_hangs_is_given_up_by_the_operators_own_clock(hours: int) -> None:
    world = running(strategy="ParameterServer", roles=PS)
    world.take_away("worker-0")
    found = world.pods["digits-worker-0"]
    assert found.deletion_requested_at is not None
    assert found.deletion_due is not None
    skew = timedelta(hours=hours)
    marks = {"deletion_requested_at": found.deletion_requested_at + skew, "deletion_due": found.deletion_due + skew}
    world.pods["digits-worker-0"] = replace(found, **marks)  # type: ignore[arg-type]
    world.settle()
    world.wait(59)
    assert "digits-worker-0-r1" not in world.pods, "it may be about to end"
    world.wait(2)
    assert "digits-worker-0-r1" in world.pods
