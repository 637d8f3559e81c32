"""Ready, Reconciling and Stalled, which follow from the other conditions, at each point of a job's life."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, job
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from dtj.api.status import ConditionStatus, JobStatus
from dtj.core.actions import PatchStatus
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import Platform
from support.lives import EXPECTED, points
from world import World

pytestmark = pytest.mark.unit

POINTS = points()
BY_STATUS = {"Current": ("True", "False", "False"), "Failed": ("False", "False", "True")}
NOBODY_WORKS_ON_IT = ("it is being suspended", "it is suspended", "it waits in a queue", "it is invalid")
NOT_THE_CONDITIONS = (
    "nobody has seen it",
    "it was changed, and the operator has not seen it",
    "it is being deleted",
)
"""Points that kstatus finds out by the metadata."""


def condition(body: JsonObject, kind: str) -> JsonObject:
    return next(each for each in objects(dig(body, "status", "conditions")) if each["type"] == kind)


@pytest.mark.parametrize("point", [point for point in EXPECTED if point not in NOT_THE_CONDITIONS])
def test_the_conditions_for_tools_follow_from_the_others(point: str) -> None:
    waiting = ("False", "False" if point in NOBODY_WORKS_ON_IT else "True", "False")
    kinds = (Condition.READY, Condition.RECONCILING, Condition.STALLED)
    found = tuple(condition(POINTS[point], kind)["status"] for kind in kinds)
    assert found == BY_STATUS.get(EXPECTED[point], waiting)


def test_a_training_that_does_not_progress_has_a_condition_of_its_own() -> None:
    body = POINTS["its training does not progress"]
    assert condition(body, Condition.PROGRESS_STALLED)["status"] == "True"
    assert condition(body, Condition.READY)["reason"] == Reason.ALL_PODS_READY


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


def test_every_condition_has_all_that_a_condition_of_kubernetes_must_have() -> None:
    required = {"type", "status", "reason", "message", "lastTransitionTime"}
    for point, body in POINTS.items():
        for each in objects(dig(body, "status", "conditions")):
            assert required <= each.keys(), f"{point}: {each}"
            assert each["reason"]
            assert each["lastTransitionTime"]


# -- a status of an older operator ---------------------------------------------------------------------------


def of_an_older_operator(*conditions: JsonObject, **status: object) -> Job:
    stored = JobStatus.from_object({"conditions": [*conditions], **status})
    return replace(job(), status=stored)


def written(found: Job) -> JobStatus | None:
    actions = plan(Observed(job=found, platform=Platform()), NOW)
    return next((action.status for action in actions if isinstance(action, PatchStatus)), None)


ENDED = {
    Condition.COMPLETE: ("True", "False"),
    Condition.FAILED: ("False", "True"),
}


@pytest.mark.parametrize("end", ENDED)
def test_a_finished_job_of_an_older_operator_gets_the_conditions_that_it_did_not_know_once(end: Condition) -> None:
    found = of_an_older_operator(
        {"type": end, "status": "True"},
        {"type": "Stalled", "status": "True", "reason": "Stalled", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        completionTime="2025-01-01T00:00:00Z",
    )
    status = written(found)
    assert status is not None
    assert (status.is_true(Condition.READY), status.is_true(Condition.STALLED)) == tuple(
        value == "True" for value in ENDED[end]
    )
    assert status.is_true(end)
    assert status.completion_time == "2025-01-01T00:00:00Z"
    assert {each.type for each in status.conditions} == set(Condition)
    assert all(each.reason and each.last_transition_time for each in status.conditions)
    assert written(replace(found, status=status)) is None


def test_incomplete_conditions_are_completed_with_the_next_write_those_of_others_too() -> None:
    world = World(
        of_an_older_operator(
            {"type": "PodsReady", "status": "False"},
            {"type": "example.com/Audited", "status": "True", "lastTransitionTime": "yesterday"},
            {"type": "not a type", "status": "True"},
        )
    )
    world.settle()
    by_type: dict[str, ConditionStatus] = {each.type: each for each in world.job.status.conditions}
    assert by_type.keys() == {*Condition, "example.com/Audited"}
    theirs = by_type["example.com/Audited"]
    assert (theirs.status, theirs.reason, theirs.last_transition_time) == ("True", "Unknown", "2026-01-02T03:04:05Z")
    assert by_type["PodsReady"].last_transition_time == "2026-01-02T03:04:05Z"
    assert world.step() == ()
