"""Creating objects: how much of a template is in memory at a time, and how much is kept of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dtj.api.json import JsonObject
from dtj.core.actions import CheckPods, Plan
from dtj.core.messages import MAX_MESSAGE
from dtj.core.observed import Observed
from dtj.kube.errors import Invalid
from dtj.kube.gateway import PODS
from support.engine_harness import harnessed, pod_manifest, wants_pods
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time


@virtual_time
async def test_the_pods_of_a_check_are_made_one_after_the_other(gateway: FakeGateway) -> None:
    """A template may be long, and there are six roles."""
    sent_before: list[int] = []

    class Pods:
        def __iter__(self) -> Iterator[JsonObject]:
            for number in range(6):
                sent_before.append(sum(call.dry_run for call in gateway.calls))
                yield pod_manifest(job, number)

    async with harnessed(lambda _: (), gateway=gateway) as harness:
        gateway.latency = 0.1
        job = harness.submit()
        harness.planner = lambda observed: (CheckPods(1, Pods()),) if observed.verdict is None else ()
        harness.engine.queue.add(job.key)
        await asyncio.sleep(5.0)
        assert sent_before == [0, 1, 2, 3, 4, 5]


@virtual_time
async def test_of_long_answers_as_much_is_kept_as_a_status_shows(gateway: FakeGateway) -> None:
    fills = "x" * (MAX_MESSAGE - len("worker: "))
    gateway.fail("create", PODS, Invalid("no", status=422, causes=(fills, "y" * 10**6, "z" * 10**6)))
    gateway.fail("create", PODS, Invalid("x" * 10**6, status=422))

    def planner(observed: Observed) -> Plan:
        checks = CheckPods(1, (pod_manifest(observed.job),))
        return (checks,) if observed.verdict is None else wants_pods(1)(observed)

    async with harnessed(planner, gateway=gateway) as harness:
        await harness.take()
        first, second = harness.verdict.errors
        assert (first, len(second)) == (f"worker: {fills}", MAX_MESSAGE)
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert len(refusal.message) == MAX_MESSAGE


@pytest.mark.parametrize(("priorities", "read"), [((None, 5), 5), ((7, 5), 7), ((None, None), None)])
@virtual_time
async def test_a_check_reads_the_first_priority_that_the_cluster_gives_a_pod(
    priorities: tuple[int | None, int | None], read: int | None
) -> None:
    def planner(observed: Observed) -> Plan:
        pods: list[JsonObject] = [{**pod_manifest(observed.job), "spec": {"priority": each}} for each in priorities]
        return (CheckPods(1, pods),) if observed.verdict is None else ()

    async with harnessed(planner) as harness:
        await harness.take()
        assert harness.verdict.priority == read
