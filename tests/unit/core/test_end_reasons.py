"""Whose fault an end was, by the words of kubelet, scheduler and runtime; and how long each class waits."""

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


def failed(**fields: Any) -> Pod:
    return replace(pod(JOB, "worker-0", phase=Phase.FAILED), **fields)


def class_of(of: Pod) -> PodFailureClass:
    (found,) = ends_of((of,))
    return found.failure_class


def example(reason: EndReason) -> Pod:
    """A failed pod that bears this word, as the one who writes it leaves it."""
    word = reason.word.replace("*", "cpu")
    if reason.field is Field.CONDITION:
        return failed(disrupted=True, termination=ended(1))
    if reason.field is Field.POD:
        return failed(reason=word, termination=None)
    return failed(termination=Termination(exit_code=UNKNOWN_EXIT[1] if word == "Unknown" else 137, reason=word))


@pytest.mark.parametrize("reason", END_REASONS, ids=lambda reason: reason.word)
def test_each_word_of_the_table_has_its_class(reason: EndReason) -> None:
    assert class_of(example(reason)) is reason.failure_class


def test_a_pod_that_was_not_admitted_for_a_word_that_nobody_knows_is_the_nodes_fault() -> None:
    assert class_of(failed(reason="BrandNewAdmissionPlugin", termination=None)) is PodFailureClass.DISRUPTION


def test_a_pod_that_never_started_without_a_word_is_the_users_fault() -> None:
    assert class_of(failed(termination=None)) is PodFailureClass.USER_ERROR


@pytest.mark.parametrize("code", [0, 1, 42, 143])
def test_a_pod_that_its_own_deadline_ended_is_an_error_whatever_its_code(code: int) -> None:
    end = replace(ended(code, after_seconds=600), started_at=NOW)
    assert class_of(failed(reason="DeadlineExceeded", termination=end)) is PodFailureClass.USER_ERROR


@pytest.mark.parametrize(
    ("code", "probed", "expected"),
    [
        (143, False, PodFailureClass.PREEMPTION),
        (143, True, PodFailureClass.USER_ERROR),
        (42, True, PodFailureClass.PREEMPTION),
    ],
)
def test_a_sigterm_without_a_mark_is_the_liveness_probes_where_there_is_one(
    code: int, probed: bool, expected: PodFailureClass
) -> None:
    end = replace(ended(code, after_seconds=60), started_at=NOW)
    assert class_of(failed(termination=end, probed=probed)) is expected


def test_a_drained_script_that_leaves_with_0_has_not_completed_by_a_clock_that_is_behind() -> None:
    left = replace(
        pod(JOB, "worker-0", phase=Phase.SUCCEEDED, termination=ended(0, after_seconds=8), terminating=True),
        disrupted=True,
        deletion_requested_at=NOW + timedelta(seconds=10),
    )
    assert class_of(left) is PodFailureClass.DISRUPTION
    assert class_of(replace(left, disrupted=False)) is PodFailureClass.COMPLETED


def test_a_node_that_came_back_is_the_cause_of_what_its_peers_reported_before() -> None:
    reset = failed(termination=Termination(exit_code=255, reason="Unknown", finished_at=NOW + timedelta(seconds=99)))
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
