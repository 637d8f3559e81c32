"""What a job that waits for its pods says of them: which is named, when, and how often it is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import NOW, job, pod, seen
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.core.actions import Emit, PatchStatus, RequeueAfter
from dtj.core.conditions import blocked_pods
from dtj.core.context import JobContext
from dtj.core.observed import Blocker, Phase
from dtj.kube.blockers import blocker_of, start_trouble
from dtj.kube.records import pod_from_object
from world import World

NO_NODE = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu."


def waiting_for_pods(**arguments: object) -> World:
    """A world whose job has all its pods, none of them running, for a minute."""
    world = World(job(**arguments))  # type: ignore[arg-type]
    world.settle()
    world.advance(60)
    return world


def ready_condition(world: World) -> tuple[str, str]:
    condition = world.condition(Condition.PODS_READY)
    assert condition.status == "False"
    return condition.reason, condition.message


class TestBlockers:
    def test_the_first_blocked_replica_is_named_in_the_words_of_the_scheduler(self) -> None:
        world = waiting_for_pods(roles={"worker": 4})
        world.set_pod("worker-0", Phase.RUNNING)
        world.set_pod("worker-1", Phase.RUNNING)
        world.block("worker-3", Reason.IMAGE_PULL_FAILED, "not found")
        world.block("worker-2", Reason.UNSCHEDULABLE, NO_NODE)
        world.settle()
        message = f"2 of 4 pods are ready; digits-worker-2: {NO_NODE}"
        assert ready_condition(world) == (Reason.UNSCHEDULABLE, message)
        assert (world.job.status.state, world.job.status.reason) == ("Starting", Reason.UNSCHEDULABLE)
        assert world.events[-1] == Emit("Warning", Reason.UNSCHEDULABLE, message)

    def test_a_new_reason_is_written_and_reported_at_once_and_the_same_one_never_again(self) -> None:
        world = waiting_for_pods(roles={"worker": 2})
        world.block("worker-0", Reason.UNSCHEDULABLE, NO_NODE)
        world.settle()
        world.advance(1)
        world.block("worker-0", Reason.IMAGE_PULL_FAILED, "not found")
        world.settle()
        assert world.job.status.reason == Reason.IMAGE_PULL_FAILED
        writes, events = len(world.taken(PatchStatus)), len(world.events)
        assert [event.reason for event in world.events[-2:]] == [Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED]
        for _ in range(10):
            world.advance(600)
            assert world.step() == ()
        assert (len(world.taken(PatchStatus)), len(world.events)) == (writes, events)

    def test_words_that_change_all_the_time_are_written_once_a_minute_and_no_event(self) -> None:
        world = waiting_for_pods(roles={"worker": 2})
        world.block("worker-0", Reason.IMAGE_PULL_FAILED, "i/o timeout from port 0")
        world.settle()
        writes, events = len(world.taken(PatchStatus)), len(world.events)
        for second in range(600):
            world.advance(1)
            world.block("worker-0", Reason.IMAGE_PULL_FAILED, f"i/o timeout from port {second}")
            world.settle()
        assert len(world.taken(PatchStatus)) == writes + 10
        assert len(world.events) == events

    def test_what_passes_within_moments_is_not_reported(self) -> None:
        world = World(job(roles={"worker": 2})).settle()
        writes = len(world.taken(PatchStatus))
        world.advance(1)
        world.block("worker-0", Reason.UNSCHEDULABLE, "pod has unbound immediate PersistentVolumeClaims")
        assert world.step() == (RequeueAfter(9.0),)
        world.advance(1)
        world.all_run()
        assert world.job.status.state == "Running"
        assert len(world.taken(PatchStatus)) == writes + 1
        assert len(world.events) == 1

    @pytest.mark.parametrize(("container", "where"), [("trainer", ""), ("proxy", "container proxy: ")])
    def test_a_container_that_waits_is_named_if_it_is_not_the_one_that_trains(self, container: str, where: str) -> None:
        initializing: JsonObject = {"name": "init", "state": {"waiting": {"reason": "PodInitializing"}}}
        waits: JsonObject = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        status: JsonObject = {"containerStatuses": [initializing, {"name": container, "state": waits}]}
        shown = pod_from_object({"spec": {"containers": [{"name": "trainer"}, {"name": "proxy"}]}, "status": status})
        assert blocker_of(shown) == Blocker(Reason.IMAGE_PULL_FAILED, f"{where}not found")

    @pytest.mark.parametrize(
        ("is_so", "words"),
        [
            ({}, "no such disk (FailedMount)"),
            ({"blocker": Blocker(Reason.IMAGE_PULL_FAILED, "not found")}, "not found"),
            ({"phase": Phase.RUNNING}, None),
            ({"node": ""}, None),
        ],
        ids=["the status is silent", "the status says why", "it runs", "it has no node"],
    )
    def test_an_event_says_why_a_pod_does_not_start_where_its_status_does_not(
        self, is_so: dict[str, Any], words: str | None
    ) -> None:
        waits = replace(pod(job(), "worker-0", phase=Phase.PENDING), **is_so)
        told = {waits.uid: start_trouble("FailedMount", "no such disk")}
        observed = seen(job(), pods=(waits, pod(job(), "worker-1")), start_troubles=told)
        found = blocked_pods(JobContext.of(observed, NOW + timedelta(minutes=1)))
        assert [blocker.message for _, blocker in found] == ([words] if words is not None else [])
