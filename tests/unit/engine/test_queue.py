"""The work queue: no change is missed, no key is worked on twice at a time."""

from __future__ import annotations

import asyncio

import pytest

from dtj.engine.queue import QueueShutDown, WorkQueue
from dtj.kube.waiting import Backoff
from support.virtual_time import loop_time, settled, virtual_time


def make_queue(*, rest: float = 0.0) -> WorkQueue[str]:
    return WorkQueue(backoff=Backoff(base=1.0, cap=60.0), rest=rest)


async def take(queue: WorkQueue[str]) -> str:
    """One whole pass over the next key."""
    key = await queue.get()
    queue.done(key)
    return key


@virtual_time
async def test_a_key_that_is_added_twice_is_processed_once() -> None:
    queue = make_queue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await take(queue), await take(queue)] == ["a", "b"]
    assert len(queue) == 0


@virtual_time
async def test_a_key_that_is_added_while_it_is_processed_is_processed_again_afterwards() -> None:
    queue = make_queue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0, "no second worker may get it now"
    queue.done(key)
    assert await take(queue) == "a"
    assert len(queue) == 0


@virtual_time
async def test_a_key_is_not_lost_with_a_getter_that_is_cancelled_just_when_it_is_woken() -> None:
    queue = make_queue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settled()
    queue.add("a")
    first.cancel()
    assert await second == "a"


@virtual_time
async def test_of_several_delays_the_one_that_ends_first_counts() -> None:
    queue = make_queue()
    queue.add_after("a", 30.0)
    queue.add_after("a", 5.0)
    queue.add_after("a", 20.0)
    assert await take(queue) == "a"
    assert loop_time() == 5.0
    await asyncio.sleep(60.0)
    assert len(queue) == 0


@virtual_time
async def test_a_key_that_is_added_at_once_needs_its_delay_no_more() -> None:
    queue = make_queue()
    queue.add_after("a", 30.0)
    queue.add("a")
    assert await take(queue) == "a"
    await asyncio.sleep(60.0)
    assert len(queue) == 0


@virtual_time
async def test_failures_in_a_row_wait_longer_each_time_up_to_the_cap() -> None:
    queue = make_queue()
    delays = [queue.add_failed("a") for _ in range(10)]
    assert all(0.5 * 2**n <= delay <= 2**n for n, delay in enumerate(delays[:6]))
    assert all(30.0 <= delay <= 60.0 for delay in delays[6:])
    assert len(set(delays)) == len(delays), "jobs that failed together must not all come back together"


@virtual_time
async def test_after_a_success_the_next_failure_is_the_first_again() -> None:
    queue = make_queue()
    for _ in range(8):
        queue.add_failed("a")
    queue.forget("a")
    assert queue.add_failed("a") <= 1.0


@virtual_time
async def test_a_failure_waits_at_least_as_long_as_the_server_asks_for() -> None:
    queue = make_queue()
    assert queue.add_failed("a", at_least=17.0) == 17.0
    queue.add("a")
    await take(queue)
    assert loop_time() == 17.0


@virtual_time
async def test_a_change_cuts_a_back_off_of_our_own_short() -> None:
    queue = make_queue()
    for _ in range(6):
        queue.add_failed("a")
    queue.add("a")
    await take(queue)
    assert loop_time() == 0.0


@virtual_time
async def test_a_key_rests_after_a_pass_so_that_a_burst_of_changes_costs_one_more_pass() -> None:
    queue = make_queue(rest=0.5)
    queue.add("a")
    await take(queue)
    for _ in range(100):
        queue.add("a")
    assert await take(queue) == "a"
    assert loop_time() == 0.5
    await asyncio.sleep(10.0)
    assert len(queue) == 0


@virtual_time
async def test_a_queue_that_is_shut_down_gives_out_nothing_and_sends_its_getters_home() -> None:
    queue = make_queue()
    waiting = asyncio.create_task(queue.get())
    await settled()
    queue.add_after("late", 1.0)
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await waiting
    queue.add("a")
    await asyncio.sleep(2.0)
    with pytest.raises(QueueShutDown):
        await queue.get()


@virtual_time
async def test_the_age_of_the_oldest_pass_is_known() -> None:
    queue = make_queue()
    assert queue.longest_running() == 0.0
    queue.add("a")
    await queue.get()
    await asyncio.sleep(3.0)
    queue.add("b")
    await queue.get()
    await asyncio.sleep(1.0)
    assert queue.longest_running() == 4.0
    assert queue.unfinished_work() == 5.0


@virtual_time
async def test_a_pass_stands_still_since_it_began_or_last_advanced() -> None:
    queue = make_queue()
    queue.advanced("a")
    assert queue.longest_standstill() == 0.0
    queue.add("a")
    await queue.get()
    await asyncio.sleep(3.0)
    assert queue.longest_standstill() == 3.0
    queue.advanced("a")
    await asyncio.sleep(2.0)
    assert queue.longest_standstill() == 2.0
    queue.done("a")
    assert queue.longest_standstill() == 0.0
