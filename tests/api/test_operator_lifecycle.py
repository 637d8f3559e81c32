"""What a job leaves on a real API server when it is deleted, and when it has ended."""

from __future__ import annotations

import json

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition
from support.job_world import JobWorld
from support.waiting import eventually_true

pytestmark = pytest.mark.usefixtures("operator")


def test_all_that_a_job_owns_goes_with_it(world: JobWorld) -> None:
    world.begin(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    world.delete_job()

    eventually_true(lambda: not world.pods() and not world.services())
    eventually_true(lambda: _all_going(world.claims()))


def test_after_a_whole_life_a_job_carries_no_mark_of_the_framework(world: JobWorld) -> None:
    world.submit()
    before = world.body()
    world.await_running("worker-0", "worker-1")
    world.end_pod("digits-worker-0", exit_code=0)
    world.await_condition(Condition.COMPLETE)
    after = world.body()
    assert dig(after, "metadata", "annotations") is None
    assert dig(after, "metadata", "finalizers") is None
    assert after["spec"] == before["spec"]
    assert "kopf" not in json.dumps(after)


def _all_going(bodies: dict[str, JsonObject]) -> bool:
    """A claim may wait for its protection's controller, but its end must have been asked for."""
    return all(dig(body, "metadata", "deletionTimestamp") is not None for body in bodies.values())
