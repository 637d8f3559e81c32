"""The time of the newest checkpoint on the job's Workload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import at
from dtj.api.json import dig
from dtj.api.names import Annotation
from dtj.core.actions import PatchStatus, Update
from dtj.core.observed import GangApi
from support.gang_worlds import admitted, evict
from world import World


def noted(story: World) -> object:
    """What the Workload says."""
    return dig(story.gang_manifests[-1], "metadata", "annotations", Annotation.LAST_CHECKPOINT)


def writes(story: World) -> int:
    """How often the Workload was written for it."""
    return len(story.taken(Update, GangApi))


def saves(story: World, step: int, *, after: float) -> None:
    """So many seconds later, the operator hears of a checkpoint of this step."""
    story.advance(after)
    story.hears("worker-0", step=step, lastCheckpointStep=step)


def test_the_first_checkpoint_is_noted_with_the_time_that_the_status_has() -> None:
    story = admitted()
    story.advance(30)
    story.hears("worker-0", step=5)
    assert writes(story) == 0
    saves(story, 10, after=30)
    assert story.job.status.progress is not None
    assert noted(story) == story.job.status.progress.last_checkpoint_time == at(60)


def test_no_pass_writes_it_alone() -> None:
    """The watch of the Workload may lag behind that of the job."""
    story = admitted()
    saves(story, 10, after=30)
    story.gang = replace(story.the_gang, last_checkpoint="")
    story.settle()
    assert writes(story) == 1


def test_one_each_30_seconds_costs_a_write_in_ten_minutes() -> None:
    story = admitted()
    before = len(story.taken(PatchStatus))
    for number in range(120):
        saves(story, number + 1, after=30)
    assert len(story.taken(PatchStatus)) - before == 120, "the progress alone"
    assert writes(story) == 6


def test_one_that_is_too_early_is_noted_later_although_none_follows() -> None:
    story = admitted()
    saves(story, 10, after=30)
    saves(story, 20, after=60)
    assert noted(story) == at(30)
    for step in range(21, 80):
        story.advance(10)
        story.hears("worker-0", step=step, lastCheckpointStep=20)
    assert noted(story) == at(90)
    assert writes(story) == 2


def test_a_job_that_saves_no_more_costs_no_write() -> None:
    story = admitted()
    saves(story, 10, after=30)
    written = len(story.history)
    story.operator_restarts()
    story.gangs = story.gangs or admitted().gangs
    for _ in range(5):
        story.wait(3600)
    assert writes(story) == 1
    assert not [action for action in story.history[written:] if isinstance(action, PatchStatus)]


def test_progress_without_another_checkpoint_leaves_its_time() -> None:
    story = admitted()
    saves(story, 10, after=30)
    for step in range(11, 200):
        story.advance(10)
        story.hears("worker-0", step=step, lastCheckpointStep=10)
    assert noted(story) == at(30)
    assert writes(story) == 1


@pytest.mark.parametrize("other", ["", "yesterday", "2999-01-01T00:00:00Z"])
def test_what_others_wrote_there_is_replaced(other: str) -> None:
    story = admitted()
    saves(story, 10, after=30)
    story.gang = replace(story.the_gang, last_checkpoint=other)
    story.advance(10)
    story.hears("worker-0", step=11, lastCheckpointStep=10)
    assert story.the_gang.last_checkpoint == at(30)


def test_a_job_that_waits_in_its_queue_again_costs_no_write() -> None:
    story = admitted()
    story.advance(30)
    story.report("worker-0", step=10, lastCheckpointStep=10)
    evict(story, "Preempted")
    story.wait(60)
    assert writes(story) == 0
