"""How far a job is, as its pod says it over HTTP, in the status that users read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtj.api.names import Condition
from support.job_world import JobWorld
from support.status_port import StatusPort
from support.waiting import eventually, eventually_true

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def trainer() -> Iterator[StatusPort]:
    """A pod's status port."""
    with StatusPort() as port:
        yield port


def test_progress_and_a_stall_are_in_the_status(world: JobWorld, trainer: StatusPort) -> None:
    trainer.says = {"phase": "Training", "step": 120, "totalSteps": 500, "percent": 24, "metrics": {"loss": "0.41"}}
    world.begin(roles={"worker": 1}, runPolicy={"stallTimeoutSeconds": 25})
    world.run_pod("digits-worker-0", ip=trainer.address)

    def is_reported() -> None:
        progress = world.job().status.progress
        assert progress is not None
        assert (progress.step, progress.percent, progress.metrics) == (120, 24, {"loss": "0.41"})
        shown = world.plane.kubectl("get", "-n", world.namespace, "dtj/digits").stdout.splitlines()[-1].split()
        assert shown[:5] == ["digits", "Running", "MultiWorkerMirrored", "1/1", "24%"]

    eventually(is_reported)
    world.await_condition(Condition.PROGRESS_STALLED)
    stalled = world.condition(Condition.PROGRESS_STALLED)
    assert "step 120 since" in stalled.message

    eventually_true(lambda: trainer.received == ["/stacks"])
    trainer.says["step"] = 121

    eventually_true(lambda: not world.job().status.is_true(Condition.PROGRESS_STALLED))
