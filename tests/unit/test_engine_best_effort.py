"""Carrying out what a job can do without: its failure is said, and stops nothing."""

from __future__ import annotations

import asyncio

import pytest

from dtj.api.json import JsonObject, dig
from dtj.api.names import Reason
from dtj.core.actions import BestEffort, CreatePod, Emit, Plan
from dtj.core.observed import Observed
from dtj.kube.errors import ApiError, Forbidden, Invalid
from dtj.kube.gateway import EVENTS, PODS
from support.engine_rig import Rig, pod_manifest, rigged
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import settled, virtual_time

pytestmark = pytest.mark.unit

CREATED = Emit("Normal", Reason.PODS_CREATED, "created 2 pods")
QUOTA = Forbidden('pods "digits-worker-1" is forbidden: exceeded quota', status=403, reason="Forbidden")


def beside(observed: Observed) -> Plan:
    """A planner that wants one pod, and another one beside it."""
    job = observed.job
    present = {pod.name for pod in observed.pods}
    aside = () if "digits-worker-1" in present else (BestEffort(CreatePod.of(pod_manifest(job, 1))),)
    wanted = () if "digits-worker-0" in present else (CreatePod.of(pod_manifest(job, 0)),)
    return (*aside, *wanted, *((CREATED,) if wanted else ()))


@virtual_time
@pytest.mark.parametrize("error", [QUOTA, NO_ANSWER, Invalid("no such field", status=422)], ids=lambda e: str(e.status))
async def test_what_the_job_can_do_without_stops_nothing_when_it_fails(error: ApiError) -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, error, name="digits-worker-1", times=1000)
    async with rigged(beside, gateway=gateway) as rig:
        job = rig.submit()
        await settled()
        assert rig.gateway.names(PODS) == ["digits-worker-0"]
        assert any(CREATED.message in str(dig(body, "note")) for body in events(rig))
        assert rig.seen[-1].refusal is None
        assert rig.seen[-1].obstacle == ""
        assert rig.engine.state.caches.of(job.uid).failures == 0


@virtual_time
async def test_it_is_tried_again_ever_more_rarely_and_said_in_one_event() -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, QUOTA, name="digits-worker-1", times=1000)
    async with rigged(beside, gateway=gateway) as rig:
        rig.submit()
        await asyncio.sleep(600.0)
        assert 8 <= rig.writes().count("create pods digits-worker-1") <= 20
        (said,) = (body for body in events(rig) if body["reason"] == Reason.TENSORBOARD_FAILED)
        assert dig(said, "note") == f"{QUOTA.message}; the job goes on without TensorBoard, which is tried again"
        rig.gateway.heal()
        await asyncio.sleep(120.0)
        assert rig.gateway.names(PODS) == ["digits-worker-0", "digits-worker-1"]


def events(rig: Rig) -> list[JsonObject]:
    return [rig.gateway.body(EVENTS, name) for name in rig.gateway.names(EVENTS)]
