"""Whatever becomes of the labels and the manifest of a job that runs: Kueue gets its quota back when it wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import object_at
from dtj.api.names import Condition, Reason
from dtj.core.observed import GangsFound, Phase
from support.gang_worlds import KUEUE, admit, evict, kueue_condition, workload_conditions
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


def unreadable() -> Job:
    """The job as a newer operator, or somebody's edit, has left it."""
    return Job.from_object(stored({**manifest(), "spec": {"replicaSpecs": 5}}))


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
    changed = {"spec": job.spec, "raw_spec": job.raw_spec, "problems": job.problems}
    world.job = replace(world.job, labels=job.labels, **changed)  # type: ignore[arg-type]
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


@pytest.mark.parametrize("restarts", [False, True], ids=["the same operator", "a new operator"])
def test_a_job_whose_manifest_cannot_be_read_any_more_is_evicted(*, restarts: bool) -> None:
    world = admitted(made(runPolicy=QUEUE))
    become(world, unreadable())
    assert len(live(world)) == 3, "what runs is left alone"
    if restarts:
        world.operator_restarts()
    evict(world, "Preempted")
    assert live(world) == set()
    assert world.gang is None, "the quota is given back, and no more is asked for"
    assert world.is_true(Condition.INVALID)
    become(world, made(runPolicy=QUEUE))
    admit(world)
    world.start()
    assert sorted(live(world)) == [f"digits-worker-{index}-r1" for index in range(3)]


def test_while_such_a_job_stops_its_status_says_what_is_wrong() -> None:
    world = admitted(made(runPolicy=QUEUE))
    become(world, unreadable())
    assert world.gang is not None
    world.kueue_says({**world.gang.status, "conditions": [kueue_condition("Evicted", reason="Preempted")]})
    world.settle()
    assert world.pods
    assert world.is_true(Condition.INVALID)
    assert world.condition(Condition.SUSPENDED).reason == Reason.QUEUED
    assert world.job.status.ready == "0/3"


def test_a_copy_in_a_worker_cluster_whose_manifest_cannot_be_read_gives_the_quota_of_its_workload_back() -> None:
    world = admitted(made(runPolicy=QUEUE))
    become(world, unreadable())
    world.job = replace(world.job, prebuilt_workload="digits")
    evict(world, "Preempted")
    assert live(world) == set()
    assert workload_conditions(world)["QuotaReserved"] == "False/Pending"


def test_a_job_that_ended_before_its_manifest_could_not_be_read_any_more_is_finished() -> None:
    world = admitted(made(runPolicy=QUEUE))
    world.set_pod("worker-0", Phase.SUCCEEDED)
    while not world.job.status.terminal:
        world.step()
        world.finish_deletions()
    assert "Finished" not in workload_conditions(world)
    world.operator_restarts()
    become(world, unreadable())
    assert workload_conditions(world)["Finished"] == "True/Succeeded"


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
def test_a_job_that_waits_and_cannot_be_read_any_more_leaves_the_queue_until_it_can(phase: str) -> None:
    world = World(made(runPolicy=QUEUE), installed=(KUEUE,))
    world.settle()
    if phase == "admitted":
        admit(world)
    world.operator_restarts()
    become(world, unreadable())
    assert world.is_true(Condition.INVALID)
    assert world.gang is None, "it would hold quota without a pod"
    become(world, made(runPolicy=QUEUE))
    admit(world)
    world.start()
    assert world.is_true(Condition.PODS_READY)


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
