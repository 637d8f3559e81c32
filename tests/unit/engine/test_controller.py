"""The controller: when jobs are planned, on what, and what one job can do to the others."""

from __future__ import annotations

import asyncio

import pytest

from dtj.core.actions import CheckPods, DeletePod, Plan
from dtj.core.observed import Observed
from dtj.engine.engine import EngineSettings
from dtj.kube.gateway import JOBS, PODS
from support.engine_harness import Harness, harnessed, once, pod_manifest, wants_pods
from support.fake_gateway import FakeGateway
from support.virtual_time import settled, virtual_time


@virtual_time
async def test_a_job_is_not_planned_on_a_store_that_lacks_what_was_just_created() -> None:
    async with harnessed(wants_pods(2)) as harness:
        harness.gateway.lag()
        await harness.take()
        planned = len(harness.seen)
        for _ in range(10):
            await harness.look_again()
        assert len(harness.seen) == planned
        harness.gateway.catch_up()
        await settled()
        assert len(harness.seen) > planned
        assert len(harness.writes()) == 3, "one Service and two pods, each once"


@virtual_time
async def test_a_job_is_not_planned_on_a_store_that_shows_what_was_just_deleted() -> None:
    def planner(observed: Observed) -> Plan:
        return tuple(DeletePod(pod.name, pod.uid) for pod in observed.pods if not pod.terminating)

    async with harnessed(once()) as harness:
        job = harness.submit()
        harness.gateway.put(PODS, pod_manifest(job))
        await settled()
        harness.planner = planner
        harness.gateway.lag()
        for _ in range(10):
            await harness.look_again()
        assert harness.writes() == ["delete pods digits-worker-0"]
        harness.gateway.catch_up()
        await settled()
        assert harness.seen[-1].pods == ()


@virtual_time
async def test_a_job_that_is_being_deleted_or_is_gone_is_not_planned() -> None:
    async with harnessed(wants_pods(1)) as harness:
        await harness.take(deletionTimestamp="2026-01-02T03:04:05Z")
        harness.retract()
        await harness.look_again()
        assert harness.seen == []
        assert harness.gateway.calls == []


@virtual_time
async def test_a_job_that_vanished_unseen_is_forgotten_at_the_next_list_and_a_new_one_is_found() -> None:
    async with harnessed(once()) as harness:
        harness.submit("ghost")
        harness.submit("stays")
        harness.gateway.remove(JOBS, "ghost", silently=True)
        harness.gateway.put(JOBS, {"metadata": {"name": "missed"}, "spec": {}})
        await harness.engine.feed.relist(harness.gateway, None)
        await settled()
        assert sorted(record.name for record in harness.engine.state.jobs) == ["missed", "stays"]
        assert "missed" in {observed.job.name for observed in harness.seen}


@virtual_time
async def test_a_defect_that_one_job_meets_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def planner(observed: Observed) -> Plan:
        if observed.job.name == "poison":
            raise ZeroDivisionError
        return wants_pods(1)(observed)

    async with harnessed(planner) as harness:
        harness.submit("poison")
        harness.submit("healthy")
        await asyncio.sleep(60.0)
        assert harness.gateway.names(PODS) == ["healthy-worker-0"]
        assert 5 <= sum(observed.job.name == "poison" for observed in harness.seen) <= 12, "it backs off"
    assert "ZeroDivisionError" in caplog.text


@virtual_time
async def test_the_event_loop_does_other_things_between_two_plans() -> None:
    """All jobs are planned at the operator's start, and a lease must be renewed meanwhile."""
    others, seen_by = 0, []

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    def planner(_: Observed) -> Plan:
        seen_by.append(others)
        return ()

    async with harnessed(planner, settings=EngineSettings(workers=32, relist_every=None)) as harness:
        task = asyncio.create_task(other())
        for number in range(20):
            harness.submit(f"job-{number}")
        while len(seen_by) < 20:
            await asyncio.sleep(0)
        task.cancel()
    assert len(set(seen_by)) == 20


@virtual_time
async def test_a_planner_that_never_stops_learning_does_not_spin() -> None:
    async with harnessed(lambda observed: (CheckPods(1, ()),)) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        assert len(harness.seen) < 100


@virtual_time
async def test_the_engine_stops_within_its_time_even_where_a_call_hangs(gateway: FakeGateway) -> None:
    harness = Harness(gateway, wants_pods(1))
    running = asyncio.create_task(harness.engine.run())
    await settled()
    gateway.latency = 1e6
    await harness.take()
    started = asyncio.get_running_loop().time()
    harness.engine.stop()
    await running
    assert asyncio.get_running_loop().time() - started <= 5.0
