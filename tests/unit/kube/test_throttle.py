"""An API server that answers 429 gets fewer calls, and none before the time that it names."""

from __future__ import annotations

import asyncio

import pytest

from dtj.kube.errors import LONGEST_RETRY_AFTER, NotFound, TooManyRequests
from dtj.kube.throttle import (
    CALM_SECONDS,
    DEFAULT_PAUSE_SECONDS,
    FIRST_PACE,
    FULL_PACE,
    PacedSlots,
)
from support.virtual_time import loop_time, virtual_time


class Server:
    """Takes ``each_second`` calls in each second and refuses the others, as a FlowSchema does."""

    def __init__(self, each_second: int, *, retry_after: float | None = 1.0) -> None:
        self.slots = PacedSlots(100)
        self.each_second = each_second
        self.retry_after = retry_after
        self.calls: list[float] = []
        self.taken: dict[int, int] = {}
        self.refused = 0

    async def call(self) -> None:
        """One call. Raises TooManyRequests."""
        async with self.slots.of("a"):
            self.calls.append(loop_time())
            await asyncio.sleep(0.01)
            second = int(loop_time())
            if self.taken.get(second, 0) >= self.each_second:
                self.refused += 1
                raise TooManyRequests("slow down", status=429, retry_after=self.retry_after)
            self.taken[second] = self.taken.get(second, 0) + 1

    async def refuse_once(self) -> float:
        """Refuse one call, and take all from then on. Returns when it was refused."""
        self.each_second = 0
        with pytest.raises(TooManyRequests):
            await self.call()
        self.each_second = 10_000
        return loop_time()

    async def until_taken(self) -> None:
        """Call until it is taken, at once after each refusal."""
        while True:
            try:
                return await self.call()
            except TooManyRequests:
                continue


@virtual_time
async def test_calls_do_not_wait_while_the_api_server_takes_all() -> None:
    server = Server(10_000)
    await asyncio.gather(*(server.call() for _ in range(1000)))
    assert loop_time() < 0.5
    assert not server.slots.throttle.limited


@virtual_time
async def test_no_call_is_made_before_the_time_that_a_refusal_names() -> None:
    server = Server(0, retry_after=17.0)
    refused_at = await server.refuse_once()
    await asyncio.gather(*(server.call() for _ in range(10)))
    assert server.calls[1] >= refused_at + 17.0


@virtual_time
async def test_after_a_refusal_calls_go_on_at_a_pace() -> None:
    server = Server(0)
    began = await server.refuse_once()
    await asyncio.gather(*(server.call() for _ in range(10)))
    assert loop_time() - began >= DEFAULT_PAUSE_SECONDS + 9 / (FIRST_PACE + 10)


@virtual_time
async def test_thousands_of_callers_are_no_storm_for_a_server_that_takes_fifty_calls_a_second() -> None:
    """Without the pace each of 2,000 callers would be refused again and again."""
    server = Server(50)
    await asyncio.gather(*(server.until_taken() for _ in range(2000)))
    assert sum(server.taken.values()) == 2000
    assert server.refused < 400
    assert loop_time() < 3 * 2000 / 50


@virtual_time
async def test_calls_on_their_way_together_are_one_reason_to_slow_down() -> None:
    server = Server(0)
    await asyncio.gather(*(server.call() for _ in range(20)), return_exceptions=True)
    server.each_second = 10_000
    began = loop_time()
    await asyncio.gather(*(server.call() for _ in range(20)))
    assert loop_time() - began < DEFAULT_PAUSE_SECONDS + 20 / FIRST_PACE + 0.1


@virtual_time
async def test_a_refusal_without_a_time_and_one_with_a_very_long_one_end_the_work_for_a_bounded_time() -> None:
    for retry_after, pause in ((None, DEFAULT_PAUSE_SECONDS), (86_400.0, LONGEST_RETRY_AFTER)):
        server = Server(0, retry_after=retry_after)
        began = await server.refuse_once()
        await server.call()
        assert pause <= loop_time() - began < pause + 1.0


@virtual_time
async def test_it_is_reported_once_when_it_begins_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    server = Server(10)
    await asyncio.gather(*(server.until_taken() for _ in range(100)))
    assert server.slots.throttle.limited
    server.each_second = 10_000
    await asyncio.gather(*(server.call() for _ in range(int(FULL_PACE))))
    assert not server.slots.throttle.limited
    assert [record.message for record in caplog.records] == [
        "the API server answers 429 (Too Many Requests): all calls wait 1 s and go on slowly",
        "the API server takes all calls again",
    ]


@virtual_time
async def test_an_operator_with_few_calls_is_not_limited_for_ever() -> None:
    server = Server(0)
    await server.refuse_once()
    await asyncio.sleep(DEFAULT_PAUSE_SECONDS + CALM_SECONDS)
    assert not server.slots.throttle.limited


@virtual_time
async def test_other_errors_do_not_slow_calls_down() -> None:
    slots = PacedSlots(100)
    with pytest.raises(NotFound):
        async with slots.of("a"):
            raise NotFound("gone", status=404)
    assert not slots.throttle.limited
