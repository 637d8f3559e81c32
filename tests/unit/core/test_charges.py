"""A failure is charged once, to its cause, whatever happens: vanishing pods, tidy people, clocks, old records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import job, pod
from dtj.api.names import Condition
from dtj.core.actions import RequeueAfter
from dtj.core.observed import Phase
from world import World, running

PS = {"chief": 1, "worker": 1, "ps": 1}


class TestFailedPodsThatSomebodyTidiesAway:
    @pytest.mark.parametrize(
        ("strategy", "roles", "replica"),
        [
            ("MultiWorkerMirrored", {"worker": 2}, "worker-1"),
            ("ParameterServer", PS, "worker-0"),
            ("OneDevice", {"worker": 1}, "worker-0"),
        ],
    )
    @pytest.mark.parametrize("limit", [0, 1, 2])
    def test_use_the_backoff_limit_up_exactly(
        self, strategy: str, roles: dict[str, int], replica: str, limit: int
    ) -> None:
        world = running(strategy=strategy, roles=roles, backoffLimit=limit)
        for number in range(limit + 1):
            name = replica + (f"-r{number}" if number else "")
            world.set_pod(name, Phase.FAILED, exit_code=3)
            world.step()
            world.remove(name)
            world.wait(0.2)
            world.advance(61)
            world.start()
        assert world.is_true(Condition.FAILURE_TARGET)
        assert world.job.status.restarts.user == limit

    def test_hold_no_restart_back_and_name_the_cause(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.sees("worker-1", Phase.FAILED, exit_code=3, message="no such flower")
        world.remove("worker-1")
        world.settle()
        assert world.job.status.attempt == 1, "its time has not come"
        world.wait(1)
        assert world.job.status.attempt == 2
        assert world.job.status.pending_restart is None
        assert world.root_cause().message == "no such flower"

    def test_do_not_hide_a_cause_that_shows_later(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.sees("worker-1", Phase.FAILED, exit_code=3)
        world.take_away("worker-0")
        earlier = {"deletion_requested_at": world.now - timedelta(seconds=5)}
        world.pods["digits-worker-0"] = replace(world.pods["digits-worker-0"], **earlier)  # type: ignore[arg-type]
        world.settle()
        counts = world.job.status.restarts
        assert (world.job.status.attempt, counts.user, counts.disruption) == (2, 0, 1)
        assert world.job.status.root_cause is None


class TestPodsThatVanish:
    @pytest.mark.parametrize("limit", [0, 3])
    def test_from_a_node_that_was_not_ready_before_are_charged_to_the_infrastructure(self, limit: int) -> None:
        world = running(roles={"worker": 3}, backoffLimit=limit)
        world.pods["digits-worker-2"] = replace(world.pods["digits-worker-2"], ready=False)
        world.settle()
        world.remove("worker-2")
        for peer in ("worker-0", "worker-1"):
            world.set_pod(peer, Phase.FAILED, exit_code=1, message="UnavailableError: Socket closed")
        world.settle()
        counts = world.job.status.restarts
        assert (world.job.status.attempt, counts.user, counts.disruption) == (2, 0, 1)


class TestALostPeer:
    @pytest.mark.parametrize("strategy", ["MultiWorkerMirrored", "ParameterServer"])
    def test_waits_for_its_cause_also_where_no_disruption_is_allowed(self, strategy: str) -> None:
        roles = {"worker": 2} if strategy == "MultiWorkerMirrored" else {**PS, "worker": 2}
        world = running(strategy=strategy, roles=roles, disruptionLimit=0, backoffLimit=3)
        world.sees("worker-0", Phase.FAILED, exit_code=75)
        world.advance(1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        for _ in range(4):
            world.settle()
            world.finish_deletions()
            world.advance(2)
        assert not world.is_true(Condition.FAILURE_TARGET)
        counts = world.job.status.restarts
        assert (counts.user, counts.disruption) == (1, 0)

    def test_that_may_come_back_alone_is_looked_at_again_when_its_cause_should_have_shown(self) -> None:
        world = running(strategy="ParameterServer", roles={**PS, "worker": 2})
        world.sees("worker-0", Phase.FAILED, exit_code=75)
        world.advance(2)
        assert world.step() == (RequeueAfter(3.0),)


class TestClocks:
    def test_a_new_job_complains_of_its_names_though_it_was_created_in_the_future(self) -> None:
        world = World(job())
        world.pods["digits-worker-0"] = pod(world.job, "worker-0", owner_uid="somebody")
        world.job = replace(world.job, created_at=world.now + timedelta(hours=1))
        world.settle()
        assert world.condition(Condition.PODS_READY).reason == "NameTaken"
