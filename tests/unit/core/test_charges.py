"""A failure is charged once, to its cause, whatever happens: vanishing pods, tidy people, clocks, old records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import job, pod
from dtj.api.names import Condition
from dtj.api.spec import Role
from dtj.core.actions import CreatePod, DeletePod, PatchStatus, Plan, RequeueAfter, UpdateServiceSelector
from dtj.core.observed import Phase
from dtj.core.planner import plan
from dtj.core.replicas import Replica, number_of
from dtj.core.status import format_time
from world import World, running

pytestmark = pytest.mark.unit

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
            world.advance(0.2)
            world.settle()
            world.advance(61)
            world.settle()
            world.run_all()
            world.settle()
        assert world.is_true(Condition.FAILURE_TARGET)
        assert world.job.status.restarts.user == limit

    def test_hold_no_restart_back_and_name_the_cause(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3, message="no such flower")
        world.settle()
        world.remove("worker-1")
        world.settle()
        assert world.job.status.attempt == 1, "its time has not come"
        world.advance(1)
        world.settle()
        assert world.job.status.attempt == 2
        assert world.job.status.pending_restart is None
        assert world.job.status.root_cause is not None
        assert world.job.status.root_cause.message == "no such flower"

    def test_report_the_step_of_a_loss_that_is_not_finite(self) -> None:
        """Every worker of a collective ends with 1 and the same line, at the same time."""
        world = running(roles={"worker": 2}, backoffLimit=0)
        for name in ("worker-0", "worker-1"):
            world.set_pod(name, Phase.FAILED, exit_code=1, message="the loss is not finite at step 33 on worker 1")
        world.settle()
        assert world.is_true(Condition.FAILED) or world.is_true(Condition.FAILURE_TARGET)
        assert world.job.status.root_cause is not None
        assert world.job.status.root_cause.message == "the loss is not finite at step 33 on worker 1"
        assert world.job.status.restarts.user == 0

    def test_do_not_hide_a_cause_that_shows_later(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        world.settle()
        world.take_away("worker-0")
        earlier = {"deletion_requested_at": world.now - timedelta(seconds=5)}
        world.pods["digits-worker-0"] = replace(world.pods["digits-worker-0"], **earlier)  # type: ignore[arg-type]
        world.settle()
        counts = world.job.status.restarts
        assert (world.job.status.attempt, counts.user, counts.disruption) == (2, 0, 1)

    def test_are_not_waited_for_by_a_clock_that_was_ahead(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        world.settle()
        pending = world.job.status.pending_restart
        assert pending is not None
        ahead = pending.model_copy(update={"not_before": format_time(world.now + timedelta(hours=1))})
        world.job = replace(world.job, status=world.job.status.model_copy(update={"pending_restart": ahead}))
        world.settle()
        assert world.job.status.attempt == 2


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

    def test_of_a_server_while_a_worker_is_awaited_start_all_again(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.take_away("worker-0")
        world.settle()
        world.finish_deletions()
        world.settle()
        assert not world.is_true(Condition.PODS_READY)
        world.remove("ps-0")
        world.settle()
        assert world.job.status.attempt == 2

    def test_before_they_were_ready_after_a_restart_alone_are_made_again_and_nobody_pays(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.take_away("worker-0")
        world.settle()
        world.finish_deletions()
        world.settle()
        world.remove("worker-0-r1")
        world.settle()
        assert "digits-worker-0-r1" in world.pods
        assert world.job.status.restarts.total == 1

    def test_before_all_were_ready_are_made_again_and_nobody_pays(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.settle()
        world.remove("worker-1")
        world.settle()
        assert "digits-worker-1" in world.pods
        assert (world.job.status.attempt, world.job.status.restarts.total) == (1, 0)

    def test_cost_no_status_write_more_than_before(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.settle()
        world.run_all()
        world.settle()
        assert len(world.taken(PatchStatus)) == 2
        assert world.job.status.ready_attempt == 1


class TestALostPeer:
    @pytest.mark.parametrize("strategy", ["MultiWorkerMirrored", "ParameterServer"])
    def test_waits_for_its_cause_also_where_no_disruption_is_allowed(self, strategy: str) -> None:
        roles = {"worker": 2} if strategy == "MultiWorkerMirrored" else {**PS, "worker": 2}
        world = running(strategy=strategy, roles=roles, disruptionLimit=0, backoffLimit=3)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.settle()
        world.advance(1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        for _ in range(4):
            world.settle()
            world.finish_deletions()
            world.advance(2)
        assert not world.is_true(Condition.FAILURE_TARGET)
        counts = world.job.status.restarts
        assert (counts.user, counts.disruption) == (1, 0)

    def test_without_a_cause_is_a_disruption_and_its_limit_holds(self) -> None:
        world = running(roles={"worker": 2}, disruptionLimit=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.settle()
        assert not world.is_true(Condition.FAILURE_TARGET)
        world.advance(5)
        world.settle()
        assert world.is_true(Condition.FAILURE_TARGET)

    @pytest.mark.parametrize("hours", [2, -2])
    def test_is_not_waited_for_by_the_clock_of_another(self, hours: int) -> None:
        world = running(roles={"worker": 2})
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        found = world.pods["digits-worker-0"]
        assert found.termination is not None
        end = replace(found.termination, finished_at=world.now + timedelta(hours=hours))
        world.pods["digits-worker-0"] = replace(found, termination=end)
        world.settle()
        assert world.job.status.attempt == 2


class TestClocks:
    @pytest.mark.parametrize("skew", [0, 1, 4])
    def test_a_chiefs_completion_seconds_after_the_first_error_wins(self, skew: int) -> None:
        world = running(roles={"chief": 1, "worker": 1}, backoffLimit=0)
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.set_pod("worker-0", Phase.FAILED, exit_code=1)
        found = world.pods["digits-worker-0"]
        assert found.termination is not None
        early = replace(found.termination, finished_at=world.now - timedelta(seconds=skew))
        world.pods["digits-worker-0"] = replace(found, termination=early)
        world.settle()
        assert world.is_true(Condition.SUCCESS_CRITERIA_MET)

    def test_an_error_long_before_the_chiefs_completion_is_an_error(self) -> None:
        world = running(roles={"chief": 1, "worker": 1}, backoffLimit=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=1)
        world.advance(10)
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.settle()
        assert world.is_true(Condition.FAILURE_TARGET)

    def test_a_restart_recorded_by_a_clock_that_was_ahead_delays_no_next_one(self) -> None:
        world = running()
        world.take_away("worker-1")
        world.settle()
        world.finish_deletions()
        ahead = {"last_restart_time": format_time(world.now + timedelta(hours=1))}
        world.job = replace(world.job, status=world.job.status.model_copy(update=ahead))
        world.take_away("worker-0-r1")
        world.settle()
        assert world.job.status.attempt == 3

    def test_a_new_job_complains_of_its_names_though_it_was_created_in_the_future(self) -> None:
        world = World(job())
        world.pods["digits-worker-0"] = pod(world.job, "worker-0", owner_uid="somebody")
        world.job = replace(world.job, created_at=world.now + timedelta(hours=1))
        world.settle()
        ready = world.job.status.condition(Condition.PODS_READY)
        assert ready is not None
        assert ready.reason == "NameTaken"

    @pytest.mark.parametrize("hours", [0, 2, -2])
    def test_a_pod_that_hangs_is_given_up_by_the_operators_own_clock(self, hours: int) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.take_away("worker-0")
        found = world.pods["digits-worker-0"]
        assert found.deletion_requested_at is not None
        assert found.deletion_due is not None
        skew = timedelta(hours=hours)
        marks = {"deletion_requested_at": found.deletion_requested_at + skew, "deletion_due": found.deletion_due + skew}
        world.pods["digits-worker-0"] = replace(found, **marks)  # type: ignore[arg-type]
        world.settle()
        world.advance(59)
        world.settle()
        assert "digits-worker-0-r1" not in world.pods, "it may be about to end"
        world.advance(2)
        world.settle()
        assert "digits-worker-0-r1" in world.pods


class TestPodsOfTheDead:
    def spot_preemptions(self, world: World, times: int) -> None:
        for _ in range(times):
            world.advance(900)
            world.settle()
            there = sorted(name for name, found in world.pods.items() if not found.ended and not found.terminating)
            world.take_away(there[1].removeprefix("digits-"))
            world.step()
            for name in there:
                world.set_pod(name.removeprefix("digits-"), Phase.FAILED, exit_code=42)
            world.settle()
            world.finish_deletions()
            world.settle()
            world.run_all()
            world.settle()

    def test_do_not_pile_up_when_they_saved_and_left(self) -> None:
        world = running(roles={"worker": 8})
        self.spot_preemptions(world, 12)
        assert world.job.status.attempt == 13
        assert len(world.pods) <= 16, "this attempt's, and the one's before"

    def test_are_kept_where_they_failed_by_themselves_up_to_a_number(self) -> None:
        world = running(roles={"worker": 2}, backoffLimit=1)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        world.settle()
        world.advance(5)
        world.settle()
        world.run_all()
        world.settle()
        self.spot_preemptions(world, 4)
        assert "digits-worker-1" in world.pods, "its log says why"

    def test_that_fail_forever_are_bounded_too(self) -> None:
        world = running(roles={"worker": 4}, backoffLimit=100)
        for number in range(12):
            suffix = f"-r{number}" if number else ""
            for index in range(4):
                world.set_pod(f"worker-{index}{suffix}", Phase.FAILED, exit_code=3)
            world.settle()
            world.advance(61)
            world.settle()
            world.finish_deletions()
            world.run_all()
            world.settle()
        assert world.job.status.attempt == 13
        assert len(world.pods) == 4 + 4 + 16


class TestARecordThatIsOlderThanItsPods:
    def world(self) -> tuple[World, Plan]:
        world = running()
        stale = world.job
        world.take_away("worker-1")
        world.settle()
        world.finish_deletions()
        world.settle()
        assert world.job.status.attempt == 2
        return world, plan(replace(world.observed(), job=stale), world.now)

    def test_touches_nothing(self) -> None:
        _, wanted = self.world()
        assert [type(action) for action in wanted] == [RequeueAfter]

    def test_touches_nothing_of_a_replica_that_came_back_alone(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        stale = world.job
        world.take_away("worker-0")
        world.settle()
        world.finish_deletions()
        world.settle()
        wanted = plan(replace(world.observed(), job=stale), world.now)
        assert [type(action) for action in wanted] == [RequeueAfter]

    def test_that_does_not_come_was_lost_and_writing_a_higher_number_comes_first(self) -> None:
        world, _ = self.world()
        world.job = replace(world.job, status=world.job.status.model_copy(update={"attempt": 1}))
        world.advance(301)
        (first, *rest) = world.planned()
        assert isinstance(first, PatchStatus)
        assert first.status.attempt == 3
        assert not any(isinstance(action, DeletePod | CreatePod | UpdateServiceSelector) for action in rest)

    def test_is_not_suspected_for_names_that_are_none_of_ours(self) -> None:
        worker = Replica(Role.WORKER, 1)
        names = ("a-worker-1", "a-worker-1-r3", "a-worker-1-r", "a-worker-1-rx", "a-worker-10", "a-worker-10-r2", "b")
        assert [number_of(name, "a", worker) for name in names] == [0, 3, None, None, None, None, None]


class TestAPodThatHangsOnADeadNode:
    def test_holds_no_success_up_forever(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.settle()
        world.remove("ps-0")
        world.settle()
        world.advance(59)
        world.settle()
        assert not world.is_true(Condition.COMPLETE)
        world.advance(2)
        world.settle()
        assert world.is_true(Condition.COMPLETE)
        complete = world.job.status.condition(Condition.COMPLETE)
        assert complete is not None
        assert "digits-worker-0" in complete.message

    def test_is_looked_for_again_when_its_time_is_over(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.settle()
        assert 60.0 in [action.seconds for action in world.step() if isinstance(action, RequeueAfter)]
