"""Ready, Reconciling and Stalled, which follow from the other conditions, at each point of a job's life."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition
from support.lives import EXPECTED, points

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
