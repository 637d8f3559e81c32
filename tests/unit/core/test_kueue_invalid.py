"""Whatever becomes of the labels and the manifest of a job that runs: Kueue gets its quota back when it wants it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import object_at
from dtj.api.names import Condition, Reason
from dtj.core.observed import GangsFound, Phase
from support.gang_worlds import KUEUE, QUEUED, admit, evict, kueue_condition, workload_conditions
from world import World, live


def made(labels: Mapping[str, str] = {}, **spec: object) -> Job:  # it is only read
    body = stored(manifest(roles={"worker": 3}, **{"runPolicy": QUEUED, **spec}))  # type: ignore[arg-type]
    metadata = object_at(body, "metadata")
    metadata["labels"] = dict(labels)
    return Job.from_object(body)


def with_gpu() -> Job:
    return made(accelerator={"profile": "nvidia", "count": 1})


def queued(job: Job | None = None) -> World:
    return World(job or with_gpu(), installed=(KUEUE,)).settle()


def admitted(job: Job | None = None) -> World:
    """The job as it runs after Kueue has admitted it."""
    there = queued(job)
    admit(there)
    there.start()
    assert there.is_true(Condition.PODS_READY)
    return there


def loses_its_profile(world: World) -> None:
    world.platform = replace(world.platform, profiles={})
    world.settle()


def cannot_be_read(world: World) -> None:
    """A newer operator, or somebody's edit, has left it so."""
    world.becomes(Job.from_object(stored({**manifest(), "spec": {"replicaSpecs": 5}})))


def has_label(key: str, value: str) -> Callable[[World], None]:
    return lambda world: world.becomes(made({key: value}, accelerator={"profile": "nvidia", "count": 1}))


LABELS = {
    "another queue": has_label("kueue.x-k8s.io/queue-name", "team-b"),
    "a limit that is none": has_label("kueue.x-k8s.io/max-exec-time-seconds", "soon"),
}
WRONG = {**LABELS, "no such profile": loses_its_profile, "a manifest that cannot be read": cannot_be_read}


def is_right_again(world: World) -> None:
    world.platform = World(world.job).platform
    world.becomes(with_gpu())
    admit(world)
    world.start()
    assert world.is_true(Condition.PODS_READY)


@pytest.mark.parametrize("restarts", [False, True], ids=["the same operator", "a new operator"])
@pytest.mark.parametrize("goes_wrong", WRONG.values(), ids=WRONG)
def test_a_job_that_runs_and_cannot_be_followed_runs_on_until_it_is_evicted(
    goes_wrong: Callable[[World], None], *, restarts: bool
) -> None:
    world = admitted()
    goes_wrong(world)
    assert world.is_true(Condition.INVALID)
    assert len(live(world)) == 3, "what runs is left alone"
    if restarts:
        world.operator_restarts()
    evict(world, "Preempted")
    assert live(world) == set()
    assert world.gang is None, "the quota is given back, and no more is asked for"
    assert world.is_true(Condition.INVALID)
    is_right_again(world)
    assert sorted(live(world)) == [f"digits-worker-{index}-r1" for index in range(3)]


@pytest.mark.parametrize("restarts", [False, True], ids=["the same operator", "a new operator"])
@pytest.mark.parametrize("phase", ["queued", "admitted"])
@pytest.mark.parametrize("goes_wrong", WRONG.values(), ids=WRONG)
def test_a_job_that_waits_and_cannot_be_followed_leaves_the_queue_until_it_can(
    goes_wrong: Callable[[World], None], phase: str, *, restarts: bool
) -> None:
    world = queued()
    if phase == "admitted":
        admit(world)
    if restarts:
        world.operator_restarts()
    goes_wrong(world)
    assert world.is_true(Condition.INVALID)
    assert world.gang is None, "it would hold quota without a pod"
    is_right_again(world)


@pytest.mark.parametrize("goes_wrong", LABELS.values(), ids=LABELS)
def test_meanwhile_a_lost_pod_is_replaced_and_the_condition_invalid_says_what_is_wrong(
    goes_wrong: Callable[[World], None],
) -> None:
    world = admitted()
    goes_wrong(world)
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
    world = admitted(made({"kueue.x-k8s.io/queue-name": "team-a"}, runPolicy={}))
    world.becomes(made(runPolicy={}))
    evict(world, "Preempted")
    assert live(world) == set()
    assert world.job.status.state == "Suspended"


def test_while_such_a_job_stops_its_status_says_what_is_wrong() -> None:
    world = admitted()
    cannot_be_read(world)
    world.kueue_says({**world.the_gang.status, "conditions": [kueue_condition("Evicted", reason="Preempted")]})
    world.settle()
    assert world.pods
    assert world.is_true(Condition.INVALID)
    assert world.condition(Condition.SUSPENDED).reason == Reason.QUEUED
    assert world.job.status.ready == "0/3"


def test_a_copy_in_a_worker_cluster_whose_manifest_cannot_be_read_gives_the_quota_of_its_workload_back() -> None:
    world = admitted()
    cannot_be_read(world)
    world.job = replace(world.job, prebuilt_workload="digits")
    evict(world, "Preempted")
    assert live(world) == set()
    assert workload_conditions(world)["QuotaReserved"] == "False/Pending"


def test_a_job_that_ended_before_its_manifest_could_not_be_read_any_more_is_finished() -> None:
    world = admitted()
    world.set_pod("worker-0", Phase.SUCCEEDED)
    while not world.job.status.terminal:
        world.step()
        world.finish_deletions()
    assert "Finished" not in workload_conditions(world)
    world.operator_restarts()
    cannot_be_read(world)
    assert workload_conditions(world)["Finished"] == "True/Succeeded"


def test_a_job_that_waits_keeps_its_place_while_the_operator_lacks_rights() -> None:
    world = queued()
    world.gangs = GangsFound((), world.now, denied=(KUEUE,))
    world.settle()
    assert world.condition(Condition.INVALID).reason == Reason.GANG_UNAVAILABLE
