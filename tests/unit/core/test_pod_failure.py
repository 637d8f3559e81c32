"""Whose fault an end was, by codes, times and the words of kubelet, scheduler and runtime; how long a class waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import NOW, ended, job, pod
from dtj.core.actions import CreatePod
from dtj.core.end_reasons import END_REASONS, UNKNOWN_EXIT, EndReason, Field, PodFailureClass
from dtj.core.observed import Phase, Pod, Termination
from dtj.core.pod_failure import ends_of
from world import World

JOB = job()


def failed(code: int, *, after: float = 10, ran: float = 5, **fields: Any) -> Pod:
    """A worker that ended with this code, `after` seconds from now and having run for `ran` seconds."""
    end = replace(ended(code, after_seconds=after), started_at=NOW + timedelta(seconds=after - ran))
    return over(termination=end, **fields)


def over(**fields: Any) -> Pod:
    """A worker that has failed; of its end is known what is given."""
    return replace(pod(JOB, "worker-0", phase=Phase.FAILED), **fields)


def asked_to_stop(after: float) -> dict[str, Any]:
    return {"terminating": True, "deletion_requested_at": NOW + timedelta(seconds=after)}


def ending(of: Pod, *peers: Pod) -> PodFailureClass | None:
    return next((found.failure_class for found in ends_of((of, *peers)) if found.pod is of), None)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (pod(JOB, "worker-0"), None),
        (pod(JOB, "worker-0", phase=Phase.PENDING), None),
        (pod(JOB, "worker-0", phase=Phase.SUCCEEDED, termination=ended(0)), PodFailureClass.COMPLETED),
        (failed(1), PodFailureClass.USER_ERROR),
        (failed(137), PodFailureClass.USER_ERROR),
        (failed(75), PodFailureClass.PEER_LOST),
        (failed(42), PodFailureClass.USER_ERROR),
        (failed(143), PodFailureClass.USER_ERROR),
        (failed(42, ran=30), PodFailureClass.PREEMPTION),
        (failed(143, ran=31), PodFailureClass.PREEMPTION),
        (failed(42, **asked_to_stop(8)), PodFailureClass.PREEMPTION),
        (failed(42, disrupted=True), PodFailureClass.PREEMPTION),
        (failed(1, **asked_to_stop(8)), PodFailureClass.DISRUPTION),
        (failed(1, **asked_to_stop(12)), PodFailureClass.USER_ERROR),
        (failed(137, disrupted=True), PodFailureClass.DISRUPTION),
        (replace(pod(JOB, "worker-0"), **asked_to_stop(0)), PodFailureClass.DISRUPTION),
        # Its own deadline ended it, whatever its code.
        *((failed(code, ran=600, reason="DeadlineExceeded"), PodFailureClass.USER_ERROR) for code in (0, 1, 42, 143)),
        # A SIGTERM without a mark is the liveness probe's where there is one.
        (failed(143, ran=60, probed=True), PodFailureClass.USER_ERROR),
        (failed(42, ran=60, probed=True), PodFailureClass.PREEMPTION),
        # It was not admitted, for a word that nobody knows; or never started, without a word.
        (over(reason="BrandNewAdmissionPlugin"), PodFailureClass.DISRUPTION),
        (over(), PodFailureClass.USER_ERROR),
    ],
    ids=lambda value: "" if isinstance(value, Pod) else str(value),
)
def test_each_end_has_its_class(of: Pod, expected: PodFailureClass | None) -> None:
    assert ending(of) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.",
            PodFailureClass.DISRUPTION,
        ),
        (
            "The node was low on resource: ephemeral-storage. Container trainer was using 9Gi, which exceeds its "
            "request of 0.",
            PodFailureClass.DISRUPTION,
        ),
        ("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", PodFailureClass.USER_ERROR),
        ('Container trainer exceeded its local ephemeral storage limit "1Gi". ', PodFailureClass.USER_ERROR),
        ('Usage of EmptyDir volume "cache" exceeds the limit "1Gi". ', PodFailureClass.USER_ERROR),
    ],
)
def test_an_eviction_for_the_pods_own_use_of_storage_is_its_error(message: str, expected: PodFailureClass) -> None:
    assert ending(over(reason="Evicted", message=message)) is expected


@pytest.mark.parametrize(
    ("init", "expected"), [("", PodFailureClass.OUT_OF_MEMORY), ("fetch", PodFailureClass.USER_ERROR)]
)
def test_more_memory_for_the_main_container_is_asked_for_by_the_main_container_alone(
    init: str, expected: PodFailureClass
) -> None:
    end = replace(ended(137), reason="OOMKilled", init_container=init)
    assert ending(over(termination=end)) is expected


def test_peers_that_leave_together_with_one_that_was_asked_to_stop_are_believed_at_once() -> None:
    peer = replace(pod(JOB, "worker-1"), **asked_to_stop(0))
    assert ending(failed(42), peer) is PodFailureClass.PREEMPTION
    assert ending(failed(42), pod(JOB, "worker-1")) is PodFailureClass.USER_ERROR


def test_the_earliest_comes_first() -> None:
    first = replace(pod(JOB, "worker-1"), **asked_to_stop(2))
    assert [found.pod.index for found in ends_of((failed(1, after=3), first))] == [1, 0]


def example(reason: EndReason) -> Pod:
    """A failed pod that bears this word, as the one who writes it leaves it."""
    word = reason.word.replace("*", "cpu")
    if reason.field is Field.CONDITION:
        return over(disrupted=True, termination=ended(1))
    if reason.field is Field.POD:
        return over(reason=word)
    return over(termination=Termination(exit_code=UNKNOWN_EXIT[1] if word == "Unknown" else 137, reason=word))


@pytest.mark.parametrize("reason", END_REASONS, ids=lambda reason: reason.word)
def test_each_word_of_the_table_has_its_class(reason: EndReason) -> None:
    assert ending(example(reason)) is reason.failure_class


def test_a_drained_script_that_leaves_with_0_has_not_completed_by_a_clock_that_is_behind() -> None:
    left = replace(
        pod(JOB, "worker-0", phase=Phase.SUCCEEDED, termination=ended(0, after_seconds=8), terminating=True),
        disrupted=True,
        deletion_requested_at=NOW + timedelta(seconds=10),
    )
    assert ending(left) is PodFailureClass.DISRUPTION
    assert ending(replace(left, disrupted=False)) is PodFailureClass.COMPLETED


def test_a_node_that_came_back_is_the_cause_of_what_its_peers_reported_before() -> None:
    reset = over(termination=Termination(exit_code=255, reason="Unknown", finished_at=NOW + timedelta(seconds=99)))
    peer = replace(pod(JOB, "worker-1", phase=Phase.FAILED), termination=ended(1, after_seconds=5))
    assert [each.pod.index for each in ends_of((peer, reset))] == [0, 1]


class TestBackoffs:
    """Each class waits before the next pods, and from when its end was first seen where no time of it is known."""

    def fail(self, world: World, **fields: Any) -> None:
        for name, found in list(world.pods.items()):
            if name.startswith("digits-worker-0") and not found.main_container_ended:
                world.pods[name] = replace(found, phase=Phase.FAILED, ready=False, **fields)

    def restarts(self, world: World, seconds: int, **fields: Any) -> list[int]:
        """The seconds at which pods were created."""
        made: list[int] = []
        for second in range(seconds):
            world.settle()
            self.fail(world, **fields)
            world.settle()
            world.finish_deletions()
            made += [second] * (len(world.taken(CreatePod)) - len(made))
            world.advance(1)
        return made

    def test_an_init_container_that_fails_at_once_without_a_time_is_retried_after_1_2_and_4_seconds(self) -> None:
        world = World(job(roles={"worker": 1}, runPolicy={"backoffLimit": 3}))
        assert self.restarts(world, 30) == [0, 1, 3, 7]
        assert world.job.status.reason == "BackoffLimitExceeded"

    def test_a_node_that_does_not_admit_a_pod_is_asked_every_ten_seconds_by_whatever_clock(self) -> None:
        world = World(job(strategy="OneDevice", roles={"worker": 1}, runPolicy={"backoffLimit": 0}))
        ahead = world.now + timedelta(hours=2)
        made = self.restarts(world, 25, reason="TopologyAffinityError", created_at=ahead)
        assert made == [0, 10, 20]
