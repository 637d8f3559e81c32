"""Creating objects: how much of a template is in memory at a time, and how much is kept of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dtj.api.json import JsonObject
from dtj.core.actions import CheckPods, Plan
from dtj.core.observed import Observed
from dtj.kube.errors import Invalid
from dtj.kube.gateway import PODS
from support.engine_harness import harnessed, pod_manifest, wants_pods
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time


def checks_a_worker(observed: Observed) -> Plan:
    """Wants one verdict, and nothing after that."""
    return (CheckPods(1, (pod_manifest(observed.job),)),) if observed.verdict is None else ()


@virtual_time
async def test_the_pods_of_a_check_are_made_one_after_the_other() -> None:
    """A template may be long, and there are six roles."""
    gateway = FakeGateway()
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
async def test_of_a_long_answer_as_much_is_kept_as_a_status_shows() -> None:
    gateway = FakeGateway()
    causes = tuple(f"spec.containers[0].env[{number}].name: Invalid value: {'x' * 1000}" for number in range(1000))
    gateway.fail("create", PODS, Invalid("x" * 1_000_000, status=422, causes=causes), name="digits-worker-0")
    async with harnessed(checks_a_worker, gateway=gateway) as harness:
        await harness.take()
        assert harness.verdict.errors[0] == f"worker: {causes[0]}"
        assert 4_096 < sum(map(len, harness.verdict.errors)) < 10_000


@virtual_time
async def test_of_a_long_refusal_as_much_is_kept_as_a_status_shows() -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, Invalid("x" * 1_000_000, status=422), name="digits-worker-0")
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        await harness.take()
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert len(refusal.message) == 4_096
