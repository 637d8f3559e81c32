"""The planner, case by case. Each test reads as one sentence about a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, edited, job, seen
from dtj.api.names import Condition, Reason
from dtj.core.actions import Create, CreatePod, Delete, DeletePod, Emit, PatchStatus, Update
from dtj.core.observed import Phase
from dtj.core.planner import plan
from dtj.core.platform import JobAccess, Platform
from support.planned import called
from world import World, running


class TestStarting:
    def test_the_record_comes_first_then_the_service_and_the_event_last(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.step()
        assert [*map(called, world.step())] == ["PatchStatus", "Create Service", "CreatePod", "CreatePod", "Emit"]
        assert world.events[-1].message == "created 2 pods (2 worker)"

    @pytest.mark.parametrize(("workers", "more"), [(1, 5), (6, 5), (50, 6)])
    def test_a_start_costs_a_write_for_each_pod_and_a_few_more(self, workers: int, more: int) -> None:
        """As the chart has it, with a NetworkPolicy. The addresses of 50 replicas are in a ConfigMap."""
        world = World(job(roles={"worker": workers}), platform=Platform(job_access=JobAccess())).settle()
        world.run_all()
        world.settle()
        assert world.job.status.state == "Running"
        writes = (Create, CreatePod, Update, Delete, DeletePod, PatchStatus, Emit)
        assert sum(isinstance(action, writes) for action in world.history) == workers + more

    def test_a_deleted_job_gets_no_plan(self) -> None:
        deleting = replace(job(), deleting=True)
        assert plan(seen(deleting), NOW) == ()


class TestStatusWrites:
    def test_a_start_of_many_pods_costs_two_status_writes(self) -> None:
        world = World(job(roles={"worker": 50})).settle()
        for index in range(50):
            world.set_pod(f"worker-{index}", Phase.RUNNING)
            world.wait(0.1)
        assert world.job.status.state == "Running"
        assert len(world.taken(PatchStatus)) == 2
        assert len(world.events) == 1

    def test_conditions_of_others_are_left_alone(self) -> None:
        body = job()
        foreign = body.status.from_object({"conditions": [{"type": "QuotaReserved", "status": "True"}]})
        world = World(replace(body, status=foreign)).settle()
        assert world.job.status.conditions[0].type == "QuotaReserved"

    def test_every_condition_is_there_from_the_first_write(self) -> None:
        world = World(job()).settle()
        assert {condition.type for condition in world.job.status.conditions} == set(Condition)

    def test_a_transition_time_moves_only_with_the_status_of_its_condition(self) -> None:
        world = World(job()).settle()
        world.advance(60)
        world.all_run()
        times = {c.type: c.last_transition_time for c in world.job.status.conditions}
        assert times[Condition.PODS_READY] != times[Condition.COMPLETE]


class TestTrouble:
    def test_a_pod_that_may_not_be_deleted_is_shown_on_a_suspended_job(self) -> None:
        world = running()
        world.job = edited(world.job, suspend=True)
        world.step()
        world.obstacle = 'cannot delete resource "pods"'
        world.step()
        ready = world.condition(Condition.PODS_READY)
        assert (ready.reason, ready.message) == (Reason.API_CALL_FAILED, world.obstacle)
        assert world.job.status.state == "Suspended"

    def test_words_of_others_are_printable_in_the_status(self) -> None:
        world = World(job(), obstacle="a webhook says \x1b[2J\x9b2Jno\u202e, twice:\nno\ud800")
        world.step()
        assert world.condition(Condition.PODS_READY).message == "a webhook says no\ufffd, twice:\nno\ufffd"

    def test_a_job_that_runs_has_no_obstacle(self) -> None:
        world = running()
        world.obstacle = "slow down"
        assert world.step() == ()
