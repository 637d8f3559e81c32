"""What is evidence that a training stands still, and what is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.names import Condition, Reason
from dtj.core.actions import AskForStacks, PatchStatus
from world import World, running


def condition_of(world: World) -> tuple[str, str]:
    condition = world.condition(Condition.PROGRESS_STALLED)
    return condition.status, condition.reason


class TestAStall:
    def test_counts_from_the_first_answer(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.advance(600)
        for seconds in (0, 59):
            world.advance(seconds)
            world.hears("worker-0", step=0)
            assert not world.is_true(Condition.PROGRESS_STALLED)
        world.advance(1)
        world.hears("worker-0", step=0)
        assert world.is_true(Condition.PROGRESS_STALLED)

    @pytest.mark.parametrize("moved", [{"phase": "Evaluating"}, {"restartsInPlace": 1}, {"lastCheckpointStep": 9}])
    def test_another_phase_checkpoint_or_start_is_an_advance(self, moved: dict[str, object]) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.hears("worker-0", step=9, phase="Training")
        world.advance(50)
        world.hears("worker-0", **{"step": 9, "phase": "Training", **moved})
        world.advance(50)
        world.hears("worker-0", **{"step": 9, "phase": "Training", **moved})
        assert not world.is_true(Condition.PROGRESS_STALLED)

    @pytest.mark.parametrize("action", ["None", "Restart", "Fail"])
    def test_has_the_pods_that_train_print_their_stacks_once(self, action: str) -> None:
        world = World(
            job(roles={"worker": 2, "evaluator": 1}, runPolicy={"stallTimeoutSeconds": 60, "onStall": action})
        ).settle()
        world.pods = {name: replace(pod, ip=name) for name, pod in world.pods.items()}
        world.all_run()
        world.stands_still("worker-0", step=1)
        world.advance(10)
        world.hears("worker-0", step=1, examplesPerSecond=5.0)
        (asked,) = world.taken(AskForStacks)
        assert isinstance(asked, AskForStacks)
        assert [pod.name for pod in asked.pods] == ["digits-worker-0", "digits-worker-1"]


class TestNoStall:
    """A stall needs evidence by this process of the operator."""

    @pytest.mark.parametrize("action", ["None", "Restart", "Fail"])
    def test_that_a_pod_does_not_answer_is_none(self, action: str) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall=action)
        world.hears("worker-0", step=200)
        world.advance(600)
        world.is_silent("worker-0", seconds=600)
        world.settle()
        assert world.job.status.state == "Running"
        assert world.job.status.restarts.total == 0
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_an_answer_and_one_after_a_silence_that_show_the_same_place_are_evidence(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.hears("worker-0", step=200)
        world.advance(70)
        world.is_silent("worker-0", seconds=65)
        world.settle()
        world.hears("worker-0", step=200)
        assert world.is_true(Condition.PROGRESS_STALLED)

    def test_while_a_replica_that_was_replaced_alone_is_not_ready_the_others_wait(self) -> None:
        world = World(
            job(
                strategy="ParameterServer",
                roles={"chief": 1, "worker": 2, "ps": 1},
                runPolicy={"stallTimeoutSeconds": 60, "onStall": "Fail"},
            )
        ).start()
        world.hears("chief-0", step=5)
        world.loses("worker-1")
        world.finish_deletions()
        world.advance(600)
        world.start()
        world.hears("chief-0", step=5)
        assert world.job.status.state == "Running"
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_that_stalls_cannot_be_detected_is_reported_in_one_line_with_the_remedy(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall="Fail")
        world.is_silent("worker-0", seconds=59)
        world.settle()
        assert condition_of(world) == ("False", "NotStalled")
        world.is_silent("worker-0", seconds=61)
        world.settle()
        assert condition_of(world) == ("Unknown", "ProgressUnknown")
        (shown,) = [emit.message for emit in world.events if emit.reason == Reason.PROGRESS_UNKNOWN]
        assert shown == (
            "stalls cannot be detected: digits-worker-0 has not answered GET /status on port 2223 for 60 s, which is "
            "runPolicy.stallTimeoutSeconds; have the training report its progress, let the operator reach that port, "
            "or unset runPolicy.stallTimeoutSeconds"
        )
        world.hears("worker-0", step=0)
        assert condition_of(world) == ("False", "NotStalled")

    def test_what_another_process_found_stands_until_something_else_is_received(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.stands_still("worker-0", step=7)
        before = len(world.taken(PatchStatus)), len(world.events)
        world.operator_restarts()
        world.wait(20)
        world.hears("worker-0", step=7)
        assert (len(world.taken(PatchStatus)), len(world.events)) == before
        assert world.is_true(Condition.PROGRESS_STALLED)
        world.hears("worker-0", step=8)
        assert not world.is_true(Condition.PROGRESS_STALLED)


def test_a_stall_fails_the_job_if_the_user_says_so() -> None:
    world = running(seconds=0, stallTimeoutSeconds=60, onStall="Fail")
    world.stands_still("worker-0", step=0)
    world.settle_deletions()
    assert (world.job.status.state, world.condition(Condition.FAILED).reason) == ("Failed", Reason.STALLED)


def test_a_stall_restarts_the_job_if_the_user_says_so_and_the_users_budget_pays() -> None:
    world = running(seconds=0, stallTimeoutSeconds=60, onStall="Restart", backoffLimit=1)
    world.stands_still("worker-0", step=0)
    assert world.job.status.attempt == 2
    assert world.job.status.restarts.user == 1
    assert not world.is_true(Condition.PROGRESS_STALLED)
    world.finish_deletions()
    world.all_run()
    world.stands_still("worker-0-r1", step=0)
    world.settle_deletions()
    failed = world.condition(Condition.FAILED)
    assert (failed.status, failed.reason) == ("True", Reason.STALLED)
    assert "runPolicy.backoffLimit" in failed.message
