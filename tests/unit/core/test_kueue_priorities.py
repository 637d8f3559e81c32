"""Jobs that are queued with the priority of a WorkloadPriorityClass of Kueue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.job import Job
from dtj.api.json import dig, object_at
from dtj.api.kueue import PRIORITY_CLASS
from dtj.api.names import Condition
from dtj.core.actions import Update
from dtj.core.messages import WAITING_IN_QUEUE
from dtj.core.observed import CreationRefusal, GangApi
from support.gang_worlds import KUEUE, QUEUED, admit
from world import World


def waiting(priority_class: str | None = "high", **known: int) -> World:
    """A job in the queue, whose label names the class."""
    queued = job(roles={"worker": 3}, runPolicy=QUEUED)
    story = World(labelled(queued, priority_class), installed=(KUEUE,), known_priorities=known, priority=7)
    for _ in range(10):
        story.step()
    return story


def labelled(given: Job, priority_class: str | None) -> Job:
    """The job with this label alone."""
    return replace(given, labels={PRIORITY_CLASS: priority_class} if priority_class is not None else {})


def test_a_class_that_does_not_exist_is_named_with_what_to_do() -> None:
    story = waiting(low=1)
    assert story.gang is None
    assert story.condition(Condition.SUSPENDED).message == (
        f"WorkloadPriorityClass high: not found: create the class, or change the label {PRIORITY_CLASS} of the job"
    )


def test_what_else_was_refused_says_nothing_of_the_class() -> None:
    story = waiting(high=100)
    story.refusal = CreationRefusal("pod digits-worker-0", "Forbidden", "exceeded quota", story.now)
    story.wait(60)
    assert story.condition(Condition.SUSPENDED).message == WAITING_IN_QUEUE


def test_a_job_in_the_queue_follows_its_label() -> None:
    story = waiting(high=100, low=1)
    story.job = labelled(story.job, "low")
    story.settle()
    (update,) = story.taken(Update, GangApi)
    assert isinstance(update, Update)
    assert update.patch["spec"] == {
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"},
        "priority": 1,
    }


def admitted(priority_class: str | None = "high", **known: int) -> World:
    """Such a job, admitted and with its pods."""
    story = waiting(priority_class, **known)
    admit(story)
    return story.settle()


def test_a_value_that_has_changed_is_read_again() -> None:
    """Kueue gives the Workloads of a class its new value, and not those that another class follows."""
    story = admitted(high=100, low=1)
    story.job = labelled(story.job, "low")
    story.settle()
    story.known_priorities["high"] = 200
    story.job = labelled(story.job, "high")
    story.settle()
    updates = [action for action in story.taken(Update, GangApi) if isinstance(action, Update)]
    assert [dig(update.patch, "spec", "priority") for update in updates] == [1, 200]


def test_a_job_that_runs_goes_on_if_its_new_class_does_not_exist() -> None:
    story = admitted(high=100)
    pods = set(story.pods)
    story.job = labelled(story.job, "none")
    for _ in range(5):
        story.step()
    assert story.refusal is None
    assert set(story.pods) == pods
    assert not story.taken(Update, GangApi)
    assert not story.is_true(Condition.SUSPENDED)


def test_without_its_label_a_job_that_waits_gets_the_priority_of_its_pods() -> None:
    story = waiting(high=100)
    story.job = labelled(story.job, None)
    story.settle()
    spec = object_at(story.gang_manifests[-1], "spec")
    assert spec["priority"] == 7
    assert "priorityClassRef" not in spec


@pytest.mark.parametrize(("before", "after"), [(None, "high"), ("high", None)], ids=["given", "taken off"])
def test_no_class_is_given_or_taken_off_once_quota_is_reserved(before: str | None, after: str | None) -> None:
    """Kueue refuses both while quota is reserved."""
    story = admitted(before, high=100)
    story.job = labelled(story.job, after)
    story.settle()
    assert len(story.gang_manifests) == 1
    assert not story.taken(Update, GangApi)
