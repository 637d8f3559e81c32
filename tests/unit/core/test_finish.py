"""How the end of a job is recorded: first, once, with the cause of a failure, and after the last evaluation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from world import World, live, running

NO_RETRY = {"backoffLimit": 0}


class TestFailure:
    def test_the_first_failure_is_the_cause(self) -> None:
        world = running(roles={"worker": 3}, runPolicy=NO_RETRY)
        world.set_pod("worker-2", Phase.FAILED, exit_code=137, message="Killed")
        world.advance(2)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.settle_deletions()
        cause = world.root_cause()
        assert (cause.role, cause.index, cause.pod) == ("worker", 2, "digits-worker-2")
        assert (cause.exit_code, cause.signal, cause.node) == (137, 9, "node-1")
        assert world.is_true(Condition.FAILED)
        assert not world.is_true(Condition.COMPLETE)


def test_the_outcome_is_recorded_before_a_pod_is_touched() -> None:
    world = running(roles={"chief": 1, "worker": 1}, runPolicy={"cleanPodPolicy": "All"})
    world.set_pod("chief-0", Phase.SUCCEEDED)
    world.step()
    world.finish_deletions()
    assert not world.pods, "all evidence is gone"
    world.settle()
    assert world.is_true(Condition.COMPLETE)


@pytest.mark.parametrize(("phase", "event"), [(Phase.SUCCEEDED, "Normal"), (Phase.FAILED, "Warning")])
def test_an_end_is_final(phase: Phase, event: str) -> None:
    world = running(backoffLimit=0)
    world.set_pod("worker-0", phase)
    world.settle_deletions()
    assert world.events[-1].type == event
    world.pods.clear()
    world.service = None
    world.job = replace(world.job, uid="restored from a backup")
    assert world.step() == ()


@pytest.mark.parametrize("generation", [1, 3], ids=["restored from a backup", "changed"])
def test_a_status_of_a_job_that_has_ended_describes_the_job_as_it_is_now(generation: int) -> None:
    """Else kstatus finds it in progress for ever, and so do Flux and Argo CD."""
    world = running()
    world.job = replace(world.job, generation=2)
    world.settle()
    world.set_pod("worker-0", Phase.SUCCEEDED)
    world.settle_deletions()
    before = world.job.status
    world.job = replace(world.job, generation=generation)
    world.settle()
    after = world.job.status
    assert {after.observed_generation, *(each.observed_generation for each in after.conditions)} == {generation}
    unchanged = [each.model_copy(update={"observed_generation": 2}) for each in after.conditions]
    assert before == after.model_copy(update={"observed_generation": 2, "conditions": tuple(unchanged)})


@pytest.mark.parametrize(("pods_run", "word"), [(1, "Starting"), (2, "Running")])
def test_while_its_pods_stop_a_job_that_fails_is_what_it_was_before(pods_run: int, word: str) -> None:
    world = World(job(runPolicy={**NO_RETRY, "startDeadlineSeconds": 600})).settle()
    for index in range(pods_run):
        world.sees(f"worker-{index}", Phase.RUNNING)
    world.sees("worker-0", Phase.FAILED, exit_code=1)
    assert world.is_true(Condition.FAILURE_TARGET)
    assert (world.job.status.state, world.job.status.reason) == (word, Reason.STOPPING_PODS)
    world.settle_deletions()
    assert world.job.status.state == "Failed"


def test_success_forgets_the_cause_of_earlier_restarts() -> None:
    world = running(roles={"worker": 1})
    world.fail_worker(3)
    assert world.root_cause().exit_code == 3
    world.sees("worker-0-r1", Phase.SUCCEEDED)
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.root_cause is None


def test_the_cause_comes_with_what_to_do() -> None:
    world = running(roles={"worker": 1}, backoffLimit=0)
    world.sees("worker-0", Phase.FAILED, exit_code=1, message="ModuleNotFoundError: No module named 'x'")
    assert world.root_cause().hint == (
        "a Python package is missing where the program runs: add it to the image, or to the Python of dtj run"
    )


ROLES = {"worker": 2, "evaluator": 1}


def trained(**policy: str | int) -> World:
    """A job whose workers have completed, while its evaluator works on."""
    world = running(roles=ROLES, **policy)  # type: ignore[arg-type]  # mypy takes them for seconds
    for name in ("worker-0", "worker-1"):
        world.set_pod(name, Phase.SUCCEEDED, exit_code=0)
    return world.settle()


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_the_job_is_complete_when_its_evaluator_has_ended(policy: str) -> None:
    world = trained(cleanPodPolicy=policy)
    assert "digits-evaluator-0" in live(world)
    assert not world.is_true(Condition.COMPLETE)
    ready = world.condition(Condition.PODS_READY)
    assert ready.reason == Reason.STOPPING_PODS
    assert ready.message.startswith("digits-evaluator-0 evaluates the last checkpoint, until ")
    world.set_pod("evaluator-0", Phase.SUCCEEDED, exit_code=0)
    world.settle_deletions()
    assert world.condition(Condition.COMPLETE).message == "worker-0 completed"


def test_an_evaluator_that_does_not_end_is_stopped_and_the_job_says_so() -> None:
    world = trained(evaluationTimeoutSeconds=60)
    world.wait(59)
    assert "digits-evaluator-0" in live(world)
    world.wait(1)
    assert "digits-evaluator-0" not in live(world)
    world.settle_deletions()
    assert world.condition(Condition.COMPLETE).message == (
        "worker-0 completed; evaluator-0 did not end within 60 s, which is runPolicy.evaluationTimeoutSeconds"
    )


@pytest.mark.parametrize("phase", [Phase.FAILED, None], ids=["fails", "is drained"])
def test_a_job_says_that_its_evaluator_was_lost_before_it_ended(phase: Phase | None) -> None:
    world = trained()
    if phase is None:
        world.take_away("evaluator-0")
    else:
        world.set_pod("evaluator-0", phase, exit_code=1)
    world.settle_deletions()
    assert world.condition(Condition.COMPLETE).message == (
        "worker-0 completed; the last checkpoint was not evaluated, because evaluator-0 was lost"
    )


def test_other_pods_do_not_go_on_meanwhile() -> None:
    world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    world.sees("chief-0", Phase.SUCCEEDED, exit_code=0)
    assert live(world) & {"digits-worker-0", "digits-ps-0", "digits-evaluator-0"} == {"digits-evaluator-0"}
