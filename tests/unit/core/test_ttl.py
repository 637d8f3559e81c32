"""When a finished job is deleted."""

from __future__ import annotations

from builders import job
from dtj.core.actions import DeleteJob, RequeueAfter
from dtj.core.observed import Phase
from world import World, running


def next_look(world: World) -> float:
    return min(action.seconds for action in world.step() if isinstance(action, RequeueAfter))


def test_a_finished_job_is_deleted_when_its_time_has_come() -> None:
    world = running(ttlSecondsAfterFinished=30)
    world.set_pod("worker-0", Phase.SUCCEEDED)
    world.settle_deletions()
    assert world.job.status.terminal
    assert next_look(world) == 30
    world.advance(30)
    assert world.step() == (DeleteJob(),)


def test_a_suspended_job_is_kept_however_long() -> None:
    world = World(job(runPolicy={"suspend": True, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1})).settle()
    world.wait(1_000_000)
    assert world.job.status.state == "Suspended"
    assert not world.job.deleting
