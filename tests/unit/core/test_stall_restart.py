"""What a stall does to the job, as runPolicy.onStall says."""

from __future__ import annotations

import pytest

from dtj.api.names import Condition, Reason
from world import running

pytestmark = pytest.mark.unit


def test_a_stall_fails_the_job_if_the_user_says_so() -> None:
    world = running(seconds=0, stallTimeoutSeconds=60, onStall="Fail")
    world.stands_still("worker-0", step=0)
    assert world.failed().reason == Reason.STALLED


def test_a_stall_restarts_the_job_if_the_user_says_so_and_the_users_budget_pays() -> None:
    world = running(seconds=0, stallTimeoutSeconds=60, onStall="Restart", backoffLimit=1)
    world.stands_still("worker-0", step=0)
    assert world.job.status.attempt == 2
    assert world.job.status.restarts.user == 1
    assert not world.is_true(Condition.PROGRESS_STALLED)
    world.finish_deletions()
    world.run_all()
    world.settle()
    world.stands_still("worker-0-r1", step=0)
    assert world.failed().reason == Reason.STALLED
    assert "runPolicy.backoffLimit" in world.failed().message
