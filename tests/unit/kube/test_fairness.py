"""Fair shares: a tenant who wants everything delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio.client import Configuration

from dtj.engine.creation import slow_start
from dtj.engine.queue import WorkQueue
from dtj.kube.client import REQUESTS_IN_FLIGHT, KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.fairness import FairShare, FairSlots, FairWork, TakingTurns
from dtj.kube.gateway import PODS, Resource
from dtj.kube.records import Key
from dtj.kube.waiting import Backoff
from support.virtual_time import loop_time, settled, virtual_time


def taken(share: FairShare[str], tenant: str) -> int:
    """How many places the tenant gets that takes all it can."""
    places = 0
    while share.may_take(tenant):
        share.take(tenant)
        places += 1
    return places


def test_one_tenant_gets_half_and_there_is_always_a_place_for_the_next() -> None:
    share: FairShare[str] = FairShare(64)
    assert [taken(share, tenant) for tenant in "abcdefg"] == [32, 16, 8, 4, 2, 1, 1]
    assert not share.may_take("h")
    share.give_back("a")
    assert share.may_take("h")
    assert not share.may_take("a")


def test_a_single_place_can_be_taken() -> None:
    assert taken(FairShare(1), "a") == 1


def test_tenants_take_turns_however_many_values_each_has() -> None:
    turns: TakingTurns[str, int] = TakingTurns()
    for number in range(4):
        turns.push("greedy", number)
    turns.push("modest", 10)
    turns.push("late", 20)
    assert len(turns) == 6
    order = [turns.pop(lambda tenant: True) for _ in range(6)]
    assert order == [("greedy", 0), ("modest", 10), ("late", 20), ("greedy", 1), ("greedy", 2), ("greedy", 3)]
    assert turns.pop(lambda tenant: True) is None


def test_a_tenant_that_may_take_nothing_is_passed_over_and_keeps_its_turn() -> None:
    turns: TakingTurns[str, int] = TakingTurns()
    turns.push("a", 1)
    turns.push("b", 2)
    assert turns.pop(lambda tenant: tenant == "b") == ("b", 2)
    assert turns.pop(lambda tenant: False) is None
    assert turns.pop(lambda tenant: True) == ("a", 1)


@virtual_time
async def test_slots_are_given_back_also_by_those_who_are_cancelled() -> None:
    slots = FairSlots(2)

    async def hold(tenant: str) -> None:
        async with slots.of(tenant):
            await asyncio.sleep(1.0)

    holding, waiting = asyncio.create_task(hold("a")), asyncio.create_task(hold("a"))
    await settled()
    waiting.cancel()
    await settled()
    holding.cancel()
    await settled()
    began = loop_time()
    await asyncio.gather(hold("a"), hold("b"))
    assert loop_time() - began == 1.0


@virtual_time
async def test_a_slot_that_was_given_to_somebody_who_is_cancelled_in_the_same_moment_is_not_lost() -> None:
    slots = FairSlots(1)

    async def hold() -> None:
        async with slots.of("a"):
            await asyncio.sleep(1.0)

    first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
    await asyncio.sleep(1.0)
    await first
    second.cancel()
    async with asyncio.timeout(5.0):
        await hold()


# -- workers ----------------------------------------------------------------------------------------------------


def make_queue(places: int) -> WorkQueue[Key]:
    backoff = Backoff(base=1.0, cap=60.0)
    return WorkQueue(backoff=backoff, tenant_of=lambda key: key[0], places=places)


@virtual_time
async def test_jobs_of_a_namespace_that_has_all_its_workers_do_not_hold_up_others() -> None:
    queue = make_queue(places=8)
    started: dict[Key, float] = {}

    async def work() -> None:
        while True:
            key = await queue.get()
            started[key] = loop_time()
            await asyncio.sleep(100.0)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for number in range(32):
        queue.add(("greedy", str(number)))
    await asyncio.sleep(10.0)
    assert len(started) == 4, "half of the workers"
    queue.add(("modest", "job"))
    await settled()
    assert started["modest", "job"] == 10.0
    await asyncio.sleep(1000.0)
    assert len(started) == 33, "nothing is left behind"
    for worker in workers:
        worker.cancel()


# -- calls ------------------------------------------------------------------------------------------------------


class PlayedGateway(KubeGateway):
    """The real gateway; only the request itself is a pause."""

    seconds = 0.5
    most = 0
    now = 0

    @asynccontextmanager
    async def _request(self, verb: str, resource: Resource, **_: Any) -> AsyncIterator[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        yield _Reply()


class _Reply:
    async def read(self) -> bytes:
        return b"{}"


@virtual_time
async def test_32_jobs_of_one_namespace_delay_no_call_about_another() -> None:
    gateway = PlayedGateway(Configuration(host="http://nowhere.invalid"), source=ConnectionSource())

    async def create() -> None:
        await gateway.create(PODS, namespace="greedy", body={})

    jobs = [asyncio.create_task(slow_start([create] * 100)) for _ in range(32)]
    await asyncio.sleep(10.0)
    assert gateway.most == REQUESTS_IN_FLIGHT
    for namespace in ("modest", "another"):
        began = loop_time()
        await gateway.create(PODS, namespace=namespace, body={})
        assert loop_time() - began == gateway.seconds, "no wait at all"
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)
    await gateway.close()


@virtual_time
async def test_nothing_is_done_twice_at_the_same_time_and_all_is_done() -> None:
    done: list[str] = []

    async def work(value: str) -> None:
        await asyncio.sleep(1.0)
        done.append(value)

    both = FairWork(work, places=2)
    for value in ("a", "b", "a", "c", "b"):
        both.add("tenant", value)
    await both.until_done()
    assert done == ["a", "b", "c"]
    assert loop_time() == 3.0, "one of two places is kept free for others"
    running = asyncio.create_task(both.run(lambda: both.add("tenant", "a"), every=5.0))
    await asyncio.sleep(6.5)
    assert done == ["a", "b", "c", "a"]
    running.cancel()


@virtual_time
async def test_tenants_begin_in_turns_with_a_pause_in_between() -> None:
    begun: list[tuple[str, float]] = []

    async def work(value: str) -> None:
        begun.append((value, loop_time()))
        await asyncio.sleep(10.0)

    paced = FairWork(work, places=16, pause=0.5)
    for value in ("a1", "a2", "a3", "b1"):
        paced.add(value[0], value)
    await paced.until_done()
    assert begun == [("a1", 0.0), ("b1", 0.5), ("a2", 1.0), ("a3", 1.5)]
