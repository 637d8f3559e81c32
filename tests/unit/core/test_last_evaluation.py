"""A job with an evaluator ends when the last checkpoint is evaluated, or when a limit has passed."""

from __future__ import annotations

import pytest

from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from world import World, live, running

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
        "worker-0 completed; evaluator-0 did not end within 60 s, which is runPolicy.evaluationTimeoutSeconds, "
        "and was stopped"
    )


def test_other_pods_do_not_go_on_meanwhile() -> None:
    world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    world.sees("chief-0", Phase.SUCCEEDED, exit_code=0)
    assert live(world) & {"digits-worker-0", "digits-ps-0", "digits-evaluator-0"} == {"digits-evaluator-0"}
