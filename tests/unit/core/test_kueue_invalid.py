"""Whatever becomes of the labels and the manifest of a job that runs: Kueue gets its quota back when it wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import object_at
from dtj.api.names import Condition, Reason
from dtj.core.observed import GangsFound
from support.gang_worlds import KUEUE, admit, evict
from world import World, live

QUEUE = {"scheduling": {"gang": "Kueue", "queue": "team-a"}}
LABELS = {
    "another queue": {"kueue.x-k8s.io/queue-name": "team-b"},
    "a limit that is none": {"kueue.x-k8s.io/max-exec-time-seconds": "soon"},
}


def made(labels: Mapping[str, str] = {}, **spec: object) -> Job:  # it is only read
    body = stored(manifest(roles={"worker": 3}, **spec))  # type: ignore[arg-type]
    metadata = object_at(body, "metadata")
    metadata["labels"] = dict(labels)
    return Job.from_object(body)


def admitted(job: Job) -> World:
    """The job as it runs after Kueue has admitted it."""
    there = World(job, installed=(KUEUE,))
    there.settle()
    admit(there)
    there.start()
    assert there.is_true(Condition.PODS_READY)
    return there


def become(world: World, job: Job) -> None:
    """The job as somebody has changed it."""
    world.job = replace(world.job, labels=job.labels, spec=job.spec, raw_spec=job.raw_spec)
    world.settle()


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_a_job_whose_labels_cannot_be_followed_is_evicted_all_the_same(labels: dict[str, str]) -> None:
    world = admitted(made(runPolicy=QUEUE))
    become(world, made(labels, runPolicy=QUEUE))
    evict(world, "Preempted")
    assert live(world) == set()
    assert world.gang is None, "the quota is given back, and no more is asked for"
    assert world.is_true(Condition.INVALID)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_meanwhile_a_lost_pod_is_replaced_and_the_condition_invalid_says_what_is_wrong(labels: dict[str, str]) -> None:
    world = admitted(made(runPolicy=QUEUE))
    become(world, made(labels, runPolicy=QUEUE))
    world.loses("worker-1")
    world.finish_deletions()
    world.advance(11)
    world.start()
    assert len(live(world)) == 3
    assert world.is_true(Condition.PODS_READY)
    invalid = world.condition(Condition.INVALID)
    assert (invalid.status, invalid.reason) == ("True", Reason.INVALID_SPEC)
    assert invalid.message.startswith("metadata.labels: kueue.x-k8s.io/")


def test_a_job_whose_queue_label_is_removed_stays_in_its_queue() -> None:
    world = admitted(made({"kueue.x-k8s.io/queue-name": "team-a"}))
    become(world, made())
    evict(world, "Preempted")
    assert live(world) == set()
    assert world.job.status.state == "Suspended"


def test_a_job_whose_accelerator_profile_was_removed_is_evicted() -> None:
    job = made(runPolicy=QUEUE, accelerator={"profile": "nvidia", "count": 1})
    world = admitted(job)
    world.platform = replace(world.platform, profiles={})
    world.settle()
    assert world.is_true(Condition.INVALID)
    evict(world, "Preempted")
    assert live(world) == set()


def test_a_job_that_has_not_begun_is_not_queued_by_labels_that_cannot_be_followed() -> None:
    world = World(made(LABELS["another queue"], runPolicy=QUEUE), installed=(KUEUE,))
    world.settle()
    assert world.is_true(Condition.INVALID)
    assert world.gang is None


def test_a_job_that_waits_keeps_its_place_while_the_operator_lacks_rights() -> None:
    world = World(made(runPolicy=QUEUE), installed=(KUEUE,))
    world.settle()
    world.gangs = GangsFound((), world.now, denied=(KUEUE,))
    world.settle()
    assert world.condition(Condition.INVALID).reason == Reason.GANG_UNAVAILABLE
    assert world.gang is not None


@pytest.mark.parametrize("phase", ["queued", "admitted"])
def test_a_job_that_waits_and_becomes_invalid_leaves_the_queue_until_it_is_valid_again(phase: str) -> None:
    world = World(made(runPolicy=QUEUE, accelerator={"profile": "nvidia", "count": 1}), installed=(KUEUE,))
    world.settle()
    profiles = world.platform.profiles
    world.platform = replace(world.platform, profiles={})
    if phase == "admitted":
        admit(world)
    world.settle()
    assert world.is_true(Condition.INVALID)
    assert world.gang is None, "it would hold quota without a pod"
    world.platform = replace(world.platform, profiles=profiles)
    world.settle()
    admit(world)
    world.start()
    assert world.is_true(Condition.PODS_READY)
