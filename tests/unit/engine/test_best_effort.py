"""Carrying out what a job can do without: its failure is reported, and stops nothing."""

from __future__ import annotations

import asyncio

import pytest

from dtj.api.json import JsonObject, dig
from dtj.api.names import Reason
from dtj.core.actions import BestEffort, CreatePod, Emit, Plan, ReadPriorityClass
from dtj.core.observed import Observed
from dtj.kube.errors import ApiError, Forbidden, Invalid
from dtj.kube.gateway import EVENTS, PODS, WORKLOAD_PRIORITIES
from support.engine_harness import Harness, harnessed, pod_manifest
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import virtual_time

CREATED = Emit("Normal", Reason.PODS_CREATED, "created 2 pods")
QUOTA = Forbidden('pods "digits-worker-1" is forbidden: exceeded quota', status=403, reason="Forbidden")


def with_tensorboard(observed: Observed) -> Plan:
    """A planner that wants one pod, and another one next to it."""
    job = observed.job
    present = {pod.name for pod in observed.pods}
    aside = () if "digits-worker-1" in present else (BestEffort(CreatePod.of(pod_manifest(job, 1))),)
    wanted = () if "digits-worker-0" in present else (CreatePod.of(pod_manifest(job, 0)),)
    return (*aside, *wanted, *((CREATED,) if wanted else ()))


@virtual_time
@pytest.mark.parametrize("error", [QUOTA, NO_ANSWER, Invalid("no such field", status=422)], ids=lambda e: str(e.status))
async def test_what_the_job_can_do_without_stops_nothing_when_it_fails(gateway: FakeGateway, error: ApiError) -> None:
    gateway.fail("create", PODS, error, name="digits-worker-1", times=1000)
    async with harnessed(with_tensorboard, gateway=gateway) as harness:
        job = await harness.take()
        assert harness.gateway.names(PODS) == ["digits-worker-0"]
        assert any(CREATED.message in str(dig(body, "note")) for body in events(harness))
        assert harness.seen[-1].refusal is None
        assert harness.seen[-1].obstacle == ""
        assert harness.engine.state.caches.of(job.uid).failures == 0


@virtual_time
async def test_it_is_tried_again_ever_more_rarely_and_reported_in_one_event(gateway: FakeGateway) -> None:
    gateway.fail("create", PODS, QUOTA, name="digits-worker-1", times=1000)
    async with harnessed(with_tensorboard, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(600.0)
        # At least half of 1, 2, 4, … and 60 s lie between two.
        assert 8 <= harness.writes().count("create pods digits-worker-1") <= 25
        (event,) = (body for body in events(harness) if body["reason"] == Reason.TENSORBOARD_FAILED)
        assert dig(event, "note") == f"{QUOTA.message}; the job goes on without TensorBoard, which is tried again"
        harness.gateway.heal()
        await asyncio.sleep(120.0)
        assert harness.gateway.names(PODS) == ["digits-worker-0", "digits-worker-1"]


HIGH: JsonObject = {"metadata": {"name": "high", "namespace": ""}, "value": 1000}


@virtual_time
async def test_a_priority_class_that_cannot_be_read_is_reported_and_asked_for_again() -> None:
    def plan(observed: Observed) -> Plan:
        return () if observed.workload_priorities else (BestEffort(ReadPriorityClass("high")), CREATED)

    async with harnessed(plan) as harness:
        job = harness.submit()
        await asyncio.sleep(10.0)
        assert any(CREATED.message in str(dig(body, "note")) for body in events(harness))
        (event,) = (body for body in events(harness) if body["reason"] == Reason.API_CALL_FAILED)
        assert str(dig(event, "note")).startswith("WorkloadPriorityClass high: ")
        assert "the job keeps its priority: create the class, or change the label" in str(dig(event, "note"))
        assert harness.seen[-1].refusal is None
        harness.gateway.put(WORKLOAD_PRIORITIES, HIGH)
        await asyncio.sleep(60.0)
        assert harness.engine.state.caches.of(job.uid).workload_priorities == {"high": 1000}


@virtual_time
async def test_a_priority_class_that_a_job_waits_for_is_refused_until_it_can_be_read() -> None:
    def plan(observed: Observed) -> Plan:
        return () if observed.workload_priorities else (ReadPriorityClass("high"),)

    async with harnessed(plan) as harness:
        await harness.take()
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert (refusal.name, refusal.reason) == ("WorkloadPriorityClass high", "NotFound")
        harness.gateway.put(WORKLOAD_PRIORITIES, HIGH)
        await asyncio.sleep(10.0)
        assert harness.seen[-1].workload_priorities == {"high": 1000}
        assert harness.seen[-1].refusal is None


def events(harness: Harness) -> list[JsonObject]:
    return [harness.gateway.body(EVENTS, name) for name in harness.gateway.names(EVENTS)]
