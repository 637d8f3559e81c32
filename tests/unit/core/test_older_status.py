"""A status that an older operator wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, job, seen
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.status import ConditionStatus, JobStatus
from dtj.core.actions import PatchStatus
from dtj.core.planner import plan
from world import World

pytestmark = pytest.mark.unit


def of_an_older_operator(*conditions: JsonObject, **status: object) -> Job:
    stored = JobStatus.from_object({"conditions": [*conditions], **status})
    return replace(job(), status=stored)


def written(found: Job) -> JobStatus | None:
    actions = plan(seen(found), NOW)
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
