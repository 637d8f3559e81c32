"""Whether the operator is alive: a pass that makes thousands of pods is at work, one that nobody answers hangs."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from dtj.app.health import LONGEST_STANDSTILL_SECONDS, health_routes
from dtj.core.actions import BestEffort, CreatePod, DeletePod, Plan
from dtj.core.observed import Observed
from dtj.kube.gateway import PODS
from support.engine_harness import Harness, Planner, harnessed, pod_manifest, wants_pods
from support.virtual_time import settled, virtual_time

PODS_OF_THE_JOB = 300
SECONDS_OF_A_CALL = 150.0
"""Of 50 calls at a time: so many take as long as 10,000 at 12 calls a second."""


def deletes_pods(observed: Observed) -> Plan:
    return tuple(DeletePod(pod.name, pod.uid) for pod in observed.pods if not pod.terminating)


def one_by_one(observed: Observed) -> Plan:
    return tuple(BestEffort(CreatePod.of(pod_manifest(observed.job, index))) for index in range(6))


LONG_WORK = {
    "thousands of pods are made": wants_pods(PODS_OF_THE_JOB),
    "thousands of pods are deleted": deletes_pods,
    "one call is made after the other": one_by_one,
}


@pytest.mark.parametrize("planner", LONG_WORK.values(), ids=LONG_WORK)
@virtual_time
async def test_an_operator_is_alive_for_as_long_as(planner: Planner) -> None:
    async with harnessed(lambda observed: ()) as harness:
        job = await harness.take()
        for index in range(PODS_OF_THE_JOB if planner is deletes_pods else 0):
            harness.gateway.put(PODS, pod_manifest(job, index))
        await settled()
        harness.planner, harness.gateway.latency = planner, SECONDS_OF_A_CALL
        harness.engine.queue.add(job.key)
        longest = 0.0
        for _ in range(25):
            await asyncio.sleep(30.0)
            assert await is_alive(harness)
            longest = max(longest, harness.engine.queue.longest_running())
        assert longest > LONGEST_STANDSTILL_SECONDS, "the pass is long"


@virtual_time
async def test_an_operator_is_not_alive_once_a_pass_waits_for_an_answer_that_does_not_come() -> None:
    async with harnessed(wants_pods(60)) as harness:
        harness.gateway.latency = 10.0
        job = harness.submit()
        await asyncio.sleep(45.0)
        assert harness.gateway.names(PODS), "the first calls are answered"
        harness.gateway.latency = 10_000.0
        await asyncio.sleep(LONGEST_STANDSTILL_SECONDS - 60.0)
        assert await is_alive(harness)
        harness.engine.queue.add(job.key)  # news of the job is no answer
        await asyncio.sleep(90.0)
        assert not await is_alive(harness)


@virtual_time
async def test_an_operator_that_has_nothing_to_do_is_alive() -> None:
    async with harnessed(lambda observed: ()) as harness:
        await harness.take()
        await asyncio.sleep(10 * LONGEST_STANDSTILL_SECONDS)
        assert await is_alive(harness)


async def is_alive(harness: Harness) -> bool:
    """What ``/healthz`` answers."""
    routes = health_routes(
        longest_standstill=harness.engine.queue.longest_standstill, failing=lambda: "", ready=lambda: True
    )
    answer = await routes["/healthz"](make_mocked_request("GET", "/healthz"))
    assert isinstance(answer, web.Response)
    return answer.status == 200
