"""Time limits: to start, to run, and to be kept."""

from __future__ import annotations

import pytest

from builders import edited, job
from dtj.api.names import Condition, Reason
from dtj.core.actions import DeleteJob, RequeueAfter
from dtj.core.observed import Phase
from world import World, running


def world_of(**policy: object) -> World:
    return World(job(runPolicy=policy)).settle()


def next_look(world: World) -> float:
    return min(action.seconds for action in world.step() if isinstance(action, RequeueAfter))


def failed_for(world: World) -> str:
    world.settle_deletions()
    condition = world.job.status.condition(Condition.FAILED)
    return condition.reason if condition is not None and condition.status == "True" else ""


def test_a_silent_job_fails_when_it_has_run_too_long() -> None:
    world = world_of(activeDeadlineSeconds=100).all_run()
    assert next_look(world) == 100
    world.advance(99)
    assert failed_for(world) == ""
    world.advance(1)
    assert failed_for(world) == Reason.DEADLINE_EXCEEDED
    assert world.pods == {}


@pytest.mark.parametrize(
    "kept_by",
    ["0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "nvidia-l5", "imge"],
    ids=["no node", "no such profile", "a template that is refused"],
)
def test_a_job_that_does_not_start_in_time_fails_and_says_what_kept_it(kept_by: str) -> None:
    limit = {"startDeadlineSeconds": 60}
    match kept_by:
        case "nvidia-l5":
            world = World(job(runPolicy=limit, accelerator={"profile": kept_by}))
        case "imge":
            world = World(job(runPolicy=limit), template_errors=(f"worker: spec.containers[0].{kept_by}",))
        case _:
            world = World(job(runPolicy=limit))
    world.wait(20)  # the operator comes late, and the limit counts from the creation
    if world.pods:
        world.block("worker-1", Reason.UNSCHEDULABLE, kept_by)
    world.wait(39)
    assert failed_for(world) == ""
    world.advance(1)
    assert failed_for(world) == Reason.START_DEADLINE_EXCEEDED
    message = world.events[-1].message
    assert message.startswith("not all pods were ready within 60 s, which is runPolicy.startDeadlineSeconds: ")
    assert kept_by in message


def test_the_start_deadline_is_over_once_all_pods_were_ready() -> None:
    world = world_of(startDeadlineSeconds=60).all_run()
    world.loses("worker-0")
    world.advance(100)
    assert failed_for(world) == ""


def test_deadlines_start_again_when_a_job_is_resumed() -> None:
    limits = {"activeDeadlineSeconds": 100, "startDeadlineSeconds": 60}
    world = world_of(**limits).all_run()
    for suspend in (True, False):
        world.advance(90)
        world.job = edited(world.job, suspend=suspend)
        world.settle()
        world.finish_deletions()
    assert failed_for(world) == ""
    world.advance(59)
    assert failed_for(world) == ""
    world.advance(1)
    assert failed_for(world) == Reason.START_DEADLINE_EXCEEDED


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
