"""Which gang schedulers there are is found out in few calls."""

from __future__ import annotations

import asyncio

import pytest

from dtj.api.spec import Gang
from dtj.convert.object_records import resource_of
from dtj.core.actions import LookForGangs, Plan
from dtj.core.gang.discovery import APIS
from dtj.core.observed import GangsFound, Observed
from dtj.kube.gateway import Resource
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time

pytestmark = pytest.mark.unit


def looks_for_gangs(observed: Observed) -> Plan:
    return (LookForGangs(),) if observed.gangs is None else ()


async def found(gateway: FakeGateway) -> GangsFound:
    async with harnessed(looks_for_gangs, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(1.0)
        gangs = harness.seen[-1].gangs
        assert gangs is not None
        return gangs


@virtual_time
async def test_where_none_is_installed_one_call_finds_that_out() -> None:
    gateway = FakeGateway()
    assert (await found(gateway)).apis == ()
    assert [call.verb for call in gateway.calls] == ["discover"]


@virtual_time
async def test_of_each_scheduler_the_newest_version_counts() -> None:
    gateway = FakeGateway()
    gateway.installed = {resource_of(api) for api in APIS if api.gang in (Gang.KUEUE, Gang.COSCHEDULING)}
    assert [(api.gang, api.api_version) for api in (await found(gateway)).apis] == [
        (Gang.KUEUE, "kueue.x-k8s.io/v1beta2"),
        (Gang.COSCHEDULING, "scheduling.x-k8s.io/v1alpha1"),
    ]
    assert [call.verb for call in gateway.calls].count("discover") == 1


@virtual_time
async def test_a_version_that_the_operator_does_not_know_is_noted() -> None:
    gateway = FakeGateway()
    priorities = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
    too_new = Resource("kueue.x-k8s.io/v9", "Workload", "workloads")
    gateway.installed = {priorities, too_new}
    gangs = await found(gateway)
    assert (gangs.apis, gangs.unknown) == ((), ("kueue.x-k8s.io/v9",))
