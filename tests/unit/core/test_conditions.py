"""The one word for the state of a job: it never goes back within an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtj.api.names import Condition, Reason
from dtj.core.conditions import DesiredCondition as Wanted
from dtj.core.conditions import DesiredConditions, state
from dtj.core.observed import Phase
from world import World, running

NOT_READY = Wanted("False", Reason.WAITING_FOR_PODS)
READY = Wanted("True", Reason.ALL_PODS_READY)


@pytest.mark.parametrize(
    ("desired", "before", "after"),
    [
        (DesiredConditions(pods_ready=NOT_READY), "", "Starting"),
        (DesiredConditions(pods_ready=NOT_READY), "Pending", "Starting"),
        (DesiredConditions(pods_ready=NOT_READY), "Running", "Running"),
        (DesiredConditions(pods_ready=NOT_READY), "Suspended", "Starting"),
        (DesiredConditions(pods_ready=NOT_READY), "Restarting", "Starting"),
        (DesiredConditions(pods_ready=NOT_READY, restarting=Wanted("True", Reason.BACKOFF)), "Running", "Restarting"),
        (DesiredConditions(pods_ready=NOT_READY, suspended=Wanted("True", Reason.SUSPENDED)), "Running", "Suspended"),
        (DesiredConditions(pods_ready=NOT_READY, invalid=Wanted("True", Reason.INVALID_SPEC)), "", "Pending"),
        (DesiredConditions(pods_ready=NOT_READY, invalid=Wanted("True", Reason.INVALID_SPEC)), "Running", "Running"),
        (DesiredConditions(pods_ready=READY), "Starting", "Running"),
        (
            DesiredConditions(pods_ready=NOT_READY, complete=Wanted("True", Reason.TRAINING_SUCCEEDED)),
            "Running",
            "Succeeded",
        ),
        (DesiredConditions(pods_ready=NOT_READY, failed=Wanted("True", Reason.REPLICA_FAILED)), "Starting", "Failed"),
        (DesiredConditions(pods_ready=NOT_READY), "what somebody wrote", "Starting"),
    ],
)
def test_an_attempt_never_goes_back_a_step(desired: DesiredConditions, before: str, after: str) -> None:
    word, _ = state(desired, started=True, before=before)
    assert word == after


def not_ready(world: World, replica: str) -> None:
    name = f"{world.job.name}-{replica}"
    world.pods[name] = replace(world.pods[name], ready=False)


def test_a_job_in_its_last_second_is_still_running() -> None:
    """A pod whose container has ended is not ready, a moment before its phase says that it has completed."""
    world = running(roles={"worker": 2})
    not_ready(world, "worker-0")
    world.settle()
    assert (world.job.status.state, world.job.status.reason) == ("Running", "WaitingForPods")
    assert not world.is_true(Condition.PODS_READY)
    world.sees("worker-0", Phase.SUCCEEDED)
    assert world.job.status.state == "Running"
    world.settle_deletions()
    assert world.job.status.state == "Succeeded"


@pytest.mark.parametrize("condition", list(Condition))
@pytest.mark.parametrize("reason", ["Rescaling", ""])
def test_a_reason_that_another_version_of_the_operator_recorded_stops_no_pass(
    condition: Condition, reason: str
) -> None:
    world = running(backoffLimit=3)
    world.set_pod("worker-0", Phase.FAILED, exit_code=1)
    for _ in range(2):
        world.settle()
        world.advance(5)
    conditions = tuple(
        each.model_copy(update={"reason": reason}) if each.type == condition else each
        for each in world.job.status.conditions
    )
    world.job = replace(world.job, status=world.job.status.model_copy(update={"conditions": conditions}))
    world.start()
    assert world.is_true(Condition.PODS_READY)
