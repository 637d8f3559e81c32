"""What the API server keeps refusing reaches the planner, for the status, until it works."""

from __future__ import annotations

import asyncio

import pytest

from dtj.core.actions import DeletePod, Plan
from dtj.core.observed import Observed
from dtj.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from dtj.kube.gateway import PODS
from support.engine_harness import harnessed, once, pod_manifest, wants_pods
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import virtual_time

FORBIDDEN = Forbidden('cannot delete resource "pods"', status=403, reason="Forbidden")
BROKEN = Unavailable("failed calling webhook", status=500, reason="InternalError")


def deletes_all(observed: Observed) -> Plan:
    return tuple(DeletePod(pod.name, pod.uid) for pod in observed.pods)


@virtual_time
async def test_a_deletion_that_is_forbidden_is_reported_until_it_works(gateway: FakeGateway) -> None:
    gateway.fail("delete", PODS, FORBIDDEN, times=3)
    async with harnessed(once(), gateway=gateway) as harness:
        gateway.put(PODS, pod_manifest(harness.submit()))
        harness.planner = deletes_all
        await asyncio.sleep(10.0)
        assert gateway.names(PODS) == []
        obstacles = [observed.obstacle for observed in harness.seen]
        assert FORBIDDEN.message in obstacles
        assert obstacles[-1] == "", "planned again when it has worked, so that the status can say so"


@pytest.mark.parametrize(
    ("error", "said"),
    [(BROKEN, BROKEN.message), (NO_ANSWER, ""), (Conflict("modified", status=409), "")],
    ids=["500", "no answer", "409"],
)
@virtual_time
async def test_an_error_that_says_something_about_the_job_is_reported_when_it_lasts(error: ApiError, said: str) -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, error, times=6)
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        obstacles = [observed.obstacle for observed in harness.seen]
        assert obstacles[:4] == ["", "", "", said]
        assert set(obstacles) == {"", said}
        assert obstacles[-1] == ""


@virtual_time
async def test_a_conflict_that_stays_is_reported_until_it_is_gone(gateway: FakeGateway) -> None:
    gateway.fail("create", PODS, Conflict("another version", status=409), times=15)
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(1000.0)
        obstacles = [observed.obstacle for observed in harness.seen]
        assert obstacles[:10] == [""] * 10
        assert "another version" in obstacles
        assert obstacles[-1] == ""
