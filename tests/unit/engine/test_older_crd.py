"""A CRD that is older than the operator: what the API server did not keep of a status is known to the next plan."""

from __future__ import annotations

import pytest

from dtj.api.status import JobStatus
from dtj.core.actions import PatchStatus, Plan
from dtj.core.observed import Observed
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import settled, virtual_time

WRITTEN = JobStatus(state="Queued", queue="default")


def write(observed: Observed) -> Plan:
    """Write the status once more at each pass."""
    return (PatchStatus(WRITTEN),)


@pytest.mark.parametrize("dropped", [{"queue"}, set()], ids=["an older CRD", "the same CRD"])
@virtual_time
async def test_a_field_that_was_not_kept_is_known_to_the_next_plan(dropped: set[str]) -> None:
    gateway = FakeGateway()
    gateway.dropped_status_fields = dropped
    async with harnessed(write, gateway=gateway) as harness:
        job = await harness.take()
        harness.engine.queue.add(job.key)
        await settled()
        found = harness.seen[-1].dropped
        assert len(harness.seen) > 1
        assert (set(found.names) if found is not None else set()) == dropped


@virtual_time
async def test_a_write_of_other_fields_does_not_make_it_forgotten() -> None:
    gateway = FakeGateway()
    gateway.dropped_status_fields = {"queue"}

    def then_another(observed: Observed) -> Plan:
        return (PatchStatus(WRITTEN if observed.dropped is None else JobStatus(state="Pending")),)

    async with harnessed(then_another, gateway=gateway) as harness:
        job = harness.submit()
        for _ in range(3):
            await settled()
            harness.engine.queue.add(job.key)
        await settled()
        assert harness.seen[-1].job.status.state == "Pending"
        found = harness.seen[-1].dropped
        assert found is not None
        assert set(found.names) == {"queue"}
