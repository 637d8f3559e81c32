"""Creating objects: calls in flight, how much of a template is in memory, and how much is kept of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from pydantic import JsonValue

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.core.actions import CheckPods, CreatePod, Plan
from dtj.core.messages import MAX_MESSAGE
from dtj.core.observed import Observed
from dtj.engine.creation import MAX_IN_FLIGHT, slow_start
from dtj.kube.errors import Invalid
from dtj.kube.gateway import PODS
from support.engine_harness import harnessed, pod_manifest, wants_pods
from support.fake_gateway import FakeGateway
from support.virtual_time import loop_time, virtual_time


class Calls:
    """Calls that take a second each, the later ones a trifle more; some fail."""

    def __init__(self, *, failing: frozenset[int] = frozenset()) -> None:
        self.failing = failing
        self.started_at: dict[int, float] = {}
        self.finished: list[int] = []

    def make(self, number: int) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        async def call(index: int) -> None:
            self.started_at[index] = loop_time()
            await asyncio.sleep(1.0 + index * 1e-6)
            if index in self.failing:
                raise ValueError(f"call {index}")
            self.finished.append(index)

        return [lambda index=index: call(index) for index in range(number)]  # type: ignore[misc]

    def started_per_second(self) -> list[int]:
        times = [int(time) for time in self.started_at.values()]
        return [times.count(second) for second in sorted(set(times))]


@virtual_time
async def test_the_number_in_flight_doubles_with_each_round_trip_up_to_the_limit() -> None:
    calls = Calls()
    await slow_start(calls.make(30), limit=8)
    assert calls.started_per_second() == [1, 2, 4, 8, 8, 7]
    assert list(calls.started_at) == list(range(30)), "started in order"


@virtual_time
async def test_when_the_first_call_fails_no_other_is_tried() -> None:
    calls = Calls(failing=frozenset({0}))
    with pytest.raises(ValueError, match="call 0"):
        await slow_start(calls.make(100))
    assert list(calls.started_at) == [0]


@virtual_time
async def test_after_a_failure_what_is_in_flight_is_awaited_and_the_first_error_is_raised() -> None:
    calls = Calls(failing=frozenset({3, 6}))
    with pytest.raises(ValueError, match="call 3"):
        await slow_start(calls.make(100))
    assert list(calls.started_at) == list(range(7))
    assert calls.finished == [0, 1, 2, 4, 5]


@virtual_time
async def test_a_cancelled_batch_leaves_no_call_behind() -> None:
    calls = Calls()
    batch = asyncio.create_task(slow_start(calls.make(10)))
    await asyncio.sleep(1.5)
    batch.cancel()
    await asyncio.sleep(10.0)
    assert calls.finished == [0]


@virtual_time
async def test_the_manifests_of_a_large_job_are_made_one_by_one_as_lanes_become_free() -> None:
    alive = most = 0

    def planner(observed: Observed) -> Plan:
        return () if observed.pods else tuple(lazy(observed.job, index) for index in range(500))

    def lazy(job: Job, index: int) -> CreatePod:
        def render() -> JsonObject:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return Manifest(pod_manifest(job, index))

        return CreatePod(f"{job.name}-worker-{index}", render)

    class Manifest(dict[str, JsonValue]):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    async with harnessed(planner) as harness:
        harness.gateway.latency = 0.01
        harness.submit()
        await asyncio.sleep(30.0)
        assert len(harness.gateway.names(PODS)) == 500
        assert 1 < most <= MAX_IN_FLIGHT, "a plan's manifests exist while they are sent, and no longer"


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
