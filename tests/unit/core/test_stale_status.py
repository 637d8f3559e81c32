"""A status that is older than the pods of its job: the planner waits for the newer one, or knows that it is lost."""

from __future__ import annotations

from dataclasses import replace

from builders import job
from dtj.api.spec import Role
from dtj.core.actions import CreatePod, DeletePod, PatchStatus, RequeueAfter, Update
from dtj.core.planner import plan
from dtj.core.replicas import Replica, number_of
from world import running

PS = {"chief": 1, "worker": 1, "ps": 1}


class TestARecordThatIsOlderThanItsPods:
    def test_touches_nothing_of_a_replica_that_came_back_alone(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        stale = world.job
        world.loses("worker-0")
        world.settle_deletions()
        wanted = plan(replace(world.observed(), job=stale), world.now)
        assert [type(action) for action in wanted] == [RequeueAfter]

    def test_that_does_not_come_was_lost_and_writing_a_higher_number_comes_first(self) -> None:
        world = running()
        world.loses("worker-1")
        world.settle_deletions()
        assert world.job.status.attempt == 2
        world.job = replace(world.job, status=world.job.status.model_copy(update={"attempt": 1}))
        world.advance(301)
        (first, *rest) = world.planned()
        assert isinstance(first, PatchStatus)
        assert first.status.attempt == 3
        assert not any(isinstance(action, DeletePod | CreatePod | Update) for action in rest)

    def test_is_not_suspected_for_names_that_are_none_of_ours(self) -> None:
        worker = Replica(Role.WORKER, 1)
        names = ("a-worker-1", "a-worker-1-r3", "a-worker-1-r", "a-worker-1-rx", "a-worker-10", "a-worker-10-r2", "b")
        assert [number_of(name, job("a"), worker) for name in names] == [0, 3, None, None, None, None, None]
