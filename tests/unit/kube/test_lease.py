"""Leader election: never two at once, and never nobody for long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from dtj.api.json import JsonObject
from dtj.kube.errors import Forbidden
from dtj.kube.gateway import Gateway
from dtj.kube.lease import DURATION, LEASES, LONGEST_DURATION, RENEW_DEADLINE, RETRY, Lease, LeaseLost
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import loop_time, settled, virtual_time

EPOCH = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TAKE_OVER = DURATION + RETRY


class Line:
    """One candidate's own connection to a shared API server: it can be cut, or swallow what is sent."""

    def __init__(self, server: FakeGateway) -> None:
        self.server = server
        self.cut = False
        self.hangs = False
        self.answers: dict[str, JsonObject] = {}
        """What a proxy answers, by verb."""

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[JsonObject]]:
        async def call(*args: Any, **kwargs: Any) -> JsonObject:
            if self.cut:
                raise NO_ANSWER
            if self.hangs:
                await asyncio.sleep(60.0)
            if verb in self.answers:
                return self.answers[verb]
            return cast(JsonObject, await getattr(self.server, verb)(*args, **kwargs))

        return call


@dataclass
class Candidate:
    """An operator that stands for election, leads, and ends with the lease, as the real one does."""

    server: FakeGateway
    name: str
    clock: timedelta = timedelta()
    line: Line = field(init=False)
    lease: Lease = field(init=False)
    task: asyncio.Task[None] = field(init=False)
    led: list[float] = field(default_factory=list)
    ended: float | None = None

    def __post_init__(self) -> None:
        self.line = Line(self.server)
        self.lease = Lease(
            cast(Gateway, self.line),
            namespace="default",
            name="dtj",
            identity=self.name,
            now=lambda: EPOCH + self.clock + timedelta(seconds=loop_time()),
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.lease.acquire()
        self.led.append(loop_time())
        try:
            await self.lease.hold()
        finally:
            self.ended = loop_time()

    @property
    def leads(self) -> bool:
        """Whether it works as the leader at this moment."""
        return bool(self.led) and self.ended is None

    def kill(self) -> None:
        """As kill -9 does: nothing is released."""
        self.task.cancel()

    async def stop(self) -> None:
        """As SIGTERM does."""
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.lease.release()

    async def loss(self) -> LeaseLost:
        """Wait until it has lost the lease."""
        await asyncio.wait([self.task])
        error = self.task.exception()
        assert isinstance(error, LeaseLost)
        return error


@asynccontextmanager
async def election(*names: str, server: FakeGateway | None = None) -> AsyncIterator[list[Candidate]]:
    """Candidates for one lease, who arrive one after another; the first leads when the block begins."""
    server = server or FakeGateway()
    candidates = []
    for name in names:
        candidates.append(Candidate(server, name))
        await settled()
    try:
        yield candidates
    finally:
        for candidate in candidates:
            candidate.task.cancel()
            with suppress(asyncio.CancelledError, LeaseLost):
                await candidate.task


def spec(server: FakeGateway) -> JsonObject:
    found = server.body(LEASES, "dtj")["spec"]
    assert isinstance(found, dict)
    return found


@virtual_time
async def test_a_free_lease_is_taken_at_once_and_says_who_has_it(server: FakeGateway) -> None:
    async with election("a", server=server) as (a,):
        assert a.leads
        assert loop_time() == 0.0
        assert spec(server) == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.678901Z",
            "renewTime": "2026-01-02T03:04:05.678901Z",
            "leaseTransitions": 0,
        }


@pytest.mark.parametrize("hours", [0, -1000, 1000])
@virtual_time
async def test_the_others_stand_by_for_as_long_as_the_holder_renews_whatever_their_clocks_show(hours: int) -> None:
    async with election("a", "b", "c") as (a, b, c):
        b.clock = timedelta(hours=hours)
        await asyncio.sleep(3600.0)
        assert (a.leads, b.leads, c.leads) == (True, False, False)
        assert b.lease.holder == c.lease.holder == "a"
        assert not b.lease.leading


@virtual_time
async def test_before_the_first_answer_nobody_is_known_to_lead(server: FakeGateway) -> None:
    server.fail("get", LEASES, NO_ANSWER, times=3)
    async with election("a", server=server) as (a,):
        assert a.lease.holder is None
        await asyncio.sleep(3 * RETRY)
        assert a.lease.holder == "a"


@pytest.mark.parametrize("killed_after", [0.0, 0.5, 1.9, 7.0, 61.3])
@virtual_time
async def test_a_killed_leader_is_followed_within_duration_and_one_attempt(killed_after: float) -> None:
    async with election("a", "b", "c") as (a, b, c):
        await asyncio.sleep(killed_after)
        a.kill()
        killed = loop_time()
        await asyncio.sleep(TAKE_OVER + 0.1)
        (began,) = b.led + c.led
        assert DURATION - RETRY <= began - killed <= TAKE_OVER < 20.0


@virtual_time
async def test_a_leader_that_stops_is_followed_at_the_next_attempt(server: FakeGateway) -> None:
    async with election("a", "b", server=server) as (a, b):
        await asyncio.sleep(30.0)
        await a.stop()
        stopped = loop_time()
        await asyncio.sleep(RETRY)
        assert b.led[0] - stopped <= RETRY
        assert spec(server)["leaseTransitions"] == 1


@virtual_time
async def test_who_does_not_lead_releases_nothing(server: FakeGateway) -> None:
    async with election("a", "b", server=server) as (a, b):
        await b.stop()
        assert a.leads
        assert spec(server)["holderIdentity"] == "a"


@virtual_time
async def test_a_leader_that_cannot_renew_ends_before_another_may_begin() -> None:
    async with election("a", "b") as (a, b):
        await asyncio.sleep(30.0)
        a.line.cut = True
        cut = loop_time()
        error = await a.loss()
        assert str(error) == "lease default/dtj was not renewed for 10 s: connection refused"
        assert RENEW_DEADLINE - RETRY <= loop_time() - cut <= RENEW_DEADLINE
        assert not b.leads
        await asyncio.sleep(TAKE_OVER)
        assert a.ended is not None
        assert b.led[0] - a.ended >= DURATION - RENEW_DEADLINE


@virtual_time
async def test_a_short_outage_costs_nobody_the_lease(server: FakeGateway) -> None:
    async with election("a", "b", server=server) as (a, b):
        a.line.cut = b.line.cut = True
        await asyncio.sleep(RENEW_DEADLINE - RETRY)
        a.line.cut = b.line.cut = False
        await asyncio.sleep(60.0)
        assert a.leads
        assert not b.leads


@virtual_time
async def test_an_api_server_that_never_answers_ends_the_leader_in_time() -> None:
    async with election("a") as (a,):
        a.line.hangs = True
        error = await a.loss()
        assert loop_time() == pytest.approx(RENEW_DEADLINE)
        assert "no answer within 5 s" in str(error)


@virtual_time
async def test_a_renewal_whose_answer_is_lost_is_no_loss(server: FakeGateway) -> None:
    async with election("a", server=server) as (a,):
        server.fail("patch", LEASES, NO_ANSWER, takes_effect=True, times=3)
        await asyncio.sleep(60.0)
        assert a.leads


@virtual_time
async def test_a_lease_whose_creation_lost_its_answer_is_ours_at_the_next_attempt(server: FakeGateway) -> None:
    server.fail("create", LEASES, NO_ANSWER, takes_effect=True)
    async with election("a", server=server) as (a,):
        assert not a.leads
        await asyncio.sleep(RETRY)
        assert a.leads


@virtual_time
async def test_a_deleted_lease_is_made_again_by_its_holder(server: FakeGateway) -> None:
    async with election("a", server=server) as (a,):
        server.remove(LEASES, "dtj")
        await asyncio.sleep(RETRY)
        assert a.leads
        assert spec(server)["holderIdentity"] == "a"


@virtual_time
async def test_who_finds_another_holder_in_its_lease_stops_leading_at_once(server: FakeGateway) -> None:
    async with election("a", server=server) as (a,):
        server.put(LEASES, {"metadata": {"name": "dtj"}, "spec": {**spec(server), "holderIdentity": "somebody"}})
        error = await a.loss()
        assert loop_time() <= RETRY
        assert str(error) == "lease default/dtj was taken by somebody"


@virtual_time
async def test_a_note_on_the_lease_by_others_neither_renews_nor_costs_it(server: FakeGateway) -> None:
    async with election("a", "b", server=server) as (a, b):
        await asyncio.sleep(30.0)
        a.kill()
        for _ in range(int(TAKE_OVER)):
            lease = server.body(LEASES, "dtj")
            server.put(LEASES, {**lease, "metadata": {"name": "dtj", "annotations": {"note": str(loop_time())}}})
            await asyncio.sleep(1.0)
        assert b.leads


def written_by_somebody(server: FakeGateway, **fields: Any) -> None:
    server.put(LEASES, {"metadata": {"name": "dtj"}, "spec": {"holderIdentity": "somebody", **fields}})


@virtual_time
async def test_a_lease_that_says_that_it_lasts_for_decades_is_waited_for_for_minutes(server: FakeGateway) -> None:
    written_by_somebody(server, leaseDurationSeconds=2**31 - 1)
    async with election("a", server=server) as (a,):
        await asyncio.sleep(LONGEST_DURATION - 1.0)
        assert not a.leads
        await asyncio.sleep(1.0 + RETRY)
        assert a.leads


@virtual_time
async def test_a_lease_that_changed_hands_as_often_as_it_can_say_counts_from_the_beginning(server: FakeGateway) -> None:
    written_by_somebody(server, leaseTransitions=2**31 - 1)
    async with election("a", server=server) as (a,):
        await asyncio.sleep(TAKE_OVER)
        assert a.leads
        assert spec(server)["leaseTransitions"] == 0


@virtual_time
async def test_a_holder_of_a_megabyte_is_named_in_a_short_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dtj.kube.lease")
    async with election("a", "b") as (a, _):
        written_by_somebody(a.server, holderIdentity="\x1b[31m" + "x" * 1_000_000)
        error = await a.loss()
        await asyncio.sleep(RETRY)
        assert len(str(error)) < 300
        assert sum("xxx" in record.getMessage() for record in caplog.records) == 1
        assert all(len(record.getMessage()) < 300 and "\x1b" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("verbs", [("get", "patch"), ("get",), ("patch",)])
@virtual_time
async def test_an_answer_that_is_no_lease_makes_nobody_the_leader(verbs: tuple[str, ...]) -> None:
    async with election("a", "b") as (a, b):
        b.line.answers = {verb: {"items": [1]} for verb in verbs}
        if "get" not in verbs:
            a.kill()
        await asyncio.sleep(TAKE_OVER)
        assert not b.leads
        assert b.lease.holder != "b"


@virtual_time
async def test_a_missing_right_is_reported_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeGateway()
    server.fail("get", LEASES, Forbidden("leases is forbidden"), times=50)
    async with election("a", server=server) as (a,):
        await asyncio.sleep(50 * RETRY)
        assert a.leads
        assert caplog.text.count("leases is forbidden") == 1


@pytest.mark.parametrize("seed", range(5))
def test_there_are_never_two_leaders_and_there_is_one_again_when_the_network_is(seed: int) -> None:
    _storm(random.Random(seed))


@virtual_time
async def _storm(rng: random.Random) -> None:
    """Twenty minutes of cut lines, calls that hang, and kills; whoever ends is started again."""
    server = FakeGateway(latency=0.01)
    async with election("a", "b", "c", server=server) as candidates:
        while loop_time() < 1200.0:
            candidate = rng.choice(candidates)
            candidate.line.cut = rng.random() < 0.3
            candidate.line.hangs = rng.random() < 0.2
            if rng.random() < 0.05:
                candidate.kill()
            _restart_who_ended(candidates)
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0.25)
                assert sum(candidate.leads for candidate in candidates) <= 1
        for candidate in candidates:
            candidate.line.cut = candidate.line.hangs = False
        _restart_who_ended(candidates)
        await asyncio.sleep(RENEW_DEADLINE + TAKE_OVER)
        assert [c.name for c in candidates if c.leads] == [spec(server)["holderIdentity"]]


def _restart_who_ended(candidates: list[Candidate]) -> None:
    for index, candidate in enumerate(candidates):
        if candidate.task.done():
            assert candidate.task.cancelled() or isinstance(candidate.task.exception(), LeaseLost)
            candidates[index] = Candidate(candidate.server, f"{candidate.name}+")
