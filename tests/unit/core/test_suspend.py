"""Jobs that are stopped by their owner's will, and go on later."""

from __future__ import annotations

import json
import re

import pytest

from builders import edited, job
from dtj.api.names import Condition, Reason
from dtj.core.actions import CreatePod, DeletePod, PatchStatus
from dtj.core.observed import Phase
from world import World, running


def suspended() -> World:
    world = running()
    world.job = edited(world.job, suspend=True)
    return world.settle()


def test_a_job_that_is_created_suspended_creates_nothing_and_says_so() -> None:
    world = World(job(runPolicy={"suspend": True})).settle()
    assert world.pods == {}
    assert world.service is None
    assert (world.job.status.state, world.job.status.start_time) == ("Suspended", None)
    assert world.is_true(Condition.SUSPENDED)
    assert world.step() == ()


def test_a_suspended_job_that_cannot_run_says_both_and_no_deadline_counts() -> None:
    limits = {"suspend": True, "startDeadlineSeconds": 60}
    world = World(job(runPolicy=limits, accelerator={"profile": "nvidia-l5"})).settle()
    world.wait(1000)
    assert world.job.status.state == "Suspended"
    assert world.is_true(Condition.SUSPENDED)
    assert "nvidia-l5" in world.condition(Condition.INVALID).message


def test_suspending_stops_all_pods_and_the_service_and_is_recorded_first() -> None:
    world = running()
    world.job = edited(world.job, suspend=True)
    first = world.step()
    assert any(isinstance(action, PatchStatus) for action in first)
    assert not any(isinstance(action, DeletePod) for action in first)
    world.settle()
    assert all(pod.terminating for pod in world.pods.values())
    assert world.service is None
    assert world.job.status.start_time is None


@pytest.mark.parametrize("code", [0, 1, 42, 143])
def test_what_the_pods_leave_with_is_no_failure_and_no_success(code: int) -> None:
    world = suspended()
    for name in ("worker-0", "worker-1"):
        world.set_pod(name, Phase.FAILED if code else Phase.SUCCEEDED, exit_code=code)
    world.settle_deletions()
    assert world.job.status.state == "Suspended"
    assert world.job.status.restarts.total == 0


def test_resuming_begins_an_attempt_and_counts_no_restart() -> None:
    world = suspended()
    world.job = edited(world.job, suspend=False)
    world.settle()
    assert [name for name, pod in world.pods.items() if not pod.terminating] == [
        "digits-worker-0-r1",
        "digits-worker-1-r1",
    ]
    world.finish_deletions()
    world.all_run()
    assert (world.job.status.state, world.job.status.attempt) == ("Running", 2)
    assert world.job.status.start_time is not None
    assert world.job.status.restarts.total == 0
    assert [e.reason for e in world.events if e.reason in (Reason.SUSPENDED, Reason.RESUMED)] == [
        Reason.SUSPENDED,
        Reason.RESUMED,
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"template": {"spec": {"containers": [{"name": "trainer", "image": "example/trainer:2"}]}}},
        {"roles": {"worker": 3}},
        {"replicaSpecs": {"worker": {"replicas": 2, "nodeSelector": {"pool": "a"}, "args": ["--epochs=9"]}}},
        {"accelerator": {"profile": "nvidia-l4"}},
        {"tensorBoard": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_job_that_was_changed_meanwhile_goes_on_as_one_that_was_created_so(change: dict[str, object]) -> None:
    elastic, checkpoint = {"maxReplicas": 4}, {"path": "gs://bucket/c"}
    changed = job(elastic=elastic, checkpoint=checkpoint, **change)  # type: ignore[arg-type]
    created, world = running(changed), running(elastic=elastic, checkpoint=checkpoint)
    world.job = edited(world.job, suspend=True)
    world.settle()
    world.finish_deletions()
    world.becomes(changed)
    world.start()
    assert [spec_of(world, name) for name in sorted(world.pods)] == [
        spec_of(created, name) for name in sorted(created.pods)
    ]


def spec_of(world: World, pod: str) -> str:
    """What its containers and its place are, whatever attempt it is of."""
    spec = json.dumps(world.manifests[pod]["spec"], sort_keys=True)
    return re.sub(r'("name": "DTJ_ATTEMPT", "value": )"\d+"', r"\1", spec)


def test_a_job_that_had_succeeded_before_is_done() -> None:
    world = running()
    world.set_pod("worker-0", Phase.SUCCEEDED)
    world.job = edited(world.job, suspend=True)
    world.settle()
    assert world.is_true(Condition.SUCCESS_CRITERIA_MET)


THEIRS, OURS = "kueue.x-k8s.io/multikueue", "training.dtj.dev/dtj-operator"


@pytest.mark.parametrize(("manager", "is_ours"), [(None, True), (OURS, True), (THEIRS, False)])
def test_a_job_that_another_controller_runs_is_left_alone(manager: str | None, is_ours: bool) -> None:
    world = World(job(managedBy=manager)).settle()
    assert len(world.taken(CreatePod)) == (2 if is_ours else 0)
    if not is_ours:
        assert world.step() == ()
