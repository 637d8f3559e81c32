"""Which condition explains the state of a job, and how a job has ended, in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.status import ConditionStatus, JobStatus
from dtj.client.diagnosis import explaining_condition, how_job_ended


def with_conditions(**statuses: str) -> Job:
    """A job with these conditions; the message of each is its name."""
    conditions = tuple(
        ConditionStatus.model_validate({"type": kind, "status": status, "reason": "Some", "message": f"about {kind}"})
        for kind, status in statuses.items()
    )
    return replace(job(), status=JobStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("conditions", "explains"),
    [
        ({"Failed": "True", "PodsReady": "False"}, Condition.FAILED),
        ({"Complete": "True", "PodsReady": "False"}, Condition.COMPLETE),
        ({"Invalid": "True"}, Condition.INVALID),
        ({"Suspended": "True", "PodsReady": "False"}, Condition.SUSPENDED),
        ({"ProgressStalled": "True", "PodsReady": "True"}, Condition.PROGRESS_STALLED),
        ({"PodsReady": "False"}, Condition.PODS_READY),
        ({"Suspended": "False", "PodsReady": "False"}, Condition.PODS_READY),
        ({"Suspended": "False", "ProgressStalled": "Unknown", "PodsReady": "True"}, None),
        ({}, None),
    ],
)
def test_a_condition_that_holds_explains_the_state(conditions: dict[str, str], explains: Condition | None) -> None:
    found = explaining_condition(with_conditions(**conditions))
    assert (found.type if found is not None else None) == explains


def test_a_job_has_failed_or_succeeded_with_the_message_of_its_condition() -> None:
    assert how_job_ended(with_conditions(Failed="True")) == "digits has failed: about Failed"
    assert how_job_ended(with_conditions(Complete="True")) == "digits has succeeded: about Complete"
