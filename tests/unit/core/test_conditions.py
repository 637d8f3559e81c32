"""The conditions of a job and the one word for its state, which never goes back within an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from dtj.api.status import MAX_CONDITIONS, ConditionStatus, JobStatus
from dtj.core.conditions import DesiredCondition as Wanted
from dtj.core.conditions import DesiredConditions, state
from dtj.core.observed import Phase
from support.lives import EXPECTED, points
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


def test_conditions_of_others_beyond_what_a_status_holds_give_way_to_those_of_the_operator() -> None:
    others = tuple(ConditionStatus(type=f"example.com/{number}", status="True") for number in range(21))
    world = World(replace(job(), status=JobStatus(conditions=others))).settle()
    kinds = [each.type for each in world.job.status.conditions]
    assert {*Condition} <= {*kinds}
    assert kinds[: MAX_CONDITIONS - len(Condition)] == [each.type for each in others[: MAX_CONDITIONS - len(Condition)]]
    assert len(kinds) == MAX_CONDITIONS


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


POINTS = points()
BY_STATUS = {"Current": ("True", "False", "False"), "Failed": ("False", "False", "True")}
NOBODY_WORKS_ON_IT = ("it is being suspended", "it is suspended", "it waits in a queue", "it is invalid")
NOT_THE_CONDITIONS = ("nobody has seen it", "it was changed, and the operator has not seen it", "it is being deleted")
"""Points that kstatus finds out by the metadata."""


def condition(body: JsonObject, kind: str) -> JsonObject:
    return next(each for each in objects(dig(body, "status", "conditions")) if each["type"] == kind)


@pytest.mark.parametrize("point", [point for point in EXPECTED if point not in NOT_THE_CONDITIONS])
def test_the_conditions_for_tools_follow_from_the_others(point: str) -> None:
    waiting = ("False", "False" if point in NOBODY_WORKS_ON_IT else "True", "False")
    kinds = (Condition.READY, Condition.RECONCILING, Condition.STALLED)
    found = tuple(condition(POINTS[point], kind)["status"] for kind in kinds)
    assert found == BY_STATUS.get(EXPECTED[point], waiting)


def test_ready_has_the_reason_of_the_condition_that_explains_it() -> None:
    reasons = {
        point: condition(POINTS[point], Condition.READY)["reason"] for point in (*NOBODY_WORKS_ON_IT, "it has failed")
    }
    assert reasons == {
        "it is being suspended": "Suspended",
        "it is suspended": "Suspended",
        "it waits in a queue": "Queued",
        "it is invalid": "UnknownAcceleratorProfile",
        "it has failed": "BackoffLimitExceeded",
    }
