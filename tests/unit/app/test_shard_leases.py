"""Operators share shards: each runs its part, a lost one is taken over, and no shard is run twice at a time."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress

import pytest

from dtj.api.json import dig
from dtj.app import run
from dtj.app.settings import OperatorSettings, SettingsError
from dtj.app.shard_leases import PATIENCE_SECONDS, TIMES, shard_leases, shard_of, shard_to_ask_for, turns_to_wait
from dtj.kube.lease import LEASES, SHARDS, Lease, LeaseLost
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import loop_time, virtual_time

TAKE_OVER_SECONDS = 15.0
"""The promise; what the times of the leases add up to is below it."""


class SharingOperators:
    """Operators over one API server. ``running`` are the shards that are run now, each with its operator."""

    def __init__(self, gateway: FakeGateway, shards: int = 3) -> None:
        self.gateway = gateway
        self.shards = shards
        self.running: dict[int, str] = {}
        self.taken: list[tuple[int, str]] = []
        self.stops: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.leases: dict[str, list[Lease]] = {}

    def start(self, name: str, *, shards: int | None = None) -> None:
        self.stops[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name, shards or self.shards))

    async def _run(self, name: str, shards: int) -> None:
        settings = OperatorSettings(leader_elect=True, lease_namespace="here", shards=shards)
        leases = self.leases[name] = shard_leases(self.gateway, settings, identity=name)

        async def operate(shard: int, leave: asyncio.Event) -> None:
            assert shard not in self.running, f"{name} runs shard {shard}, which {self.running[shard]} runs"
            self.running[shard] = name
            self.taken.append((shard, name))
            try:
                await leave.wait()
            finally:
                del self.running[shard]

        await run._keep_shards(leases, operate, self.stops[name])

    async def kill(self, name: str) -> None:
        """SIGKILL: the leases stay as they are."""
        task = self.tasks.pop(name)
        if task.done():
            task.result()  # what ended it is a failure
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.001)
        assert name not in self.running.values()

    def share(self) -> Counter[str]:
        return Counter(self.running.values())

    async def end(self) -> None:
        for name in list(self.tasks):
            await self.kill(name)


@pytest.mark.parametrize(
    ("number", "shards", "pause", "shares"),
    [
        (1, 3, 30.0, [3]),
        (2, 3, 30.0, [1, 2]),
        (3, 3, 30.0, [1, 1, 1]),
        (5, 3, 30.0, [1, 1, 1]),
        (3, 6, 0.0, [2, 2, 2]),
        (3, 7, 0.0, [2, 2, 3]),
    ],
)
@virtual_time
async def test_operators_share_the_shards_evenly_and_come_to_rest(
    number: int, shards: int, pause: float, shares: list[int]
) -> None:
    operators = SharingOperators(FakeGateway(), shards)
    for name in "abcde"[:number]:
        operators.start(name)
        await asyncio.sleep(pause)
    await asyncio.sleep(300.0)
    assert sorted(operators.share().values()) == shares
    before = list(operators.taken)
    await asyncio.sleep(600.0)
    assert operators.taken == before, "what is shared stays as it is"
    await operators.end()


@virtual_time
async def test_the_shard_of_an_operator_that_is_killed_is_taken_over_when_its_lease_runs_out() -> None:
    operators = SharingOperators(FakeGateway())
    for name in "abc":
        operators.start(name)
        await asyncio.sleep(30.0)
    (lost,) = [shard for shard, name in operators.running.items() if name == "a"]
    await operators.kill("a")
    killed_at = loop_time()
    while lost not in operators.running:
        await asyncio.sleep(0.1)
    assert loop_time() - killed_at < TAKE_OVER_SECONDS
    await operators.end()


@virtual_time
async def test_an_operator_that_stops_hands_its_shards_over_within_seconds() -> None:
    operators = SharingOperators(FakeGateway())
    for name in "ab":
        operators.start(name)
        await asyncio.sleep(30.0)
    operators.stops["a"].set()
    await asyncio.sleep(2 * PATIENCE_SECONDS + 2 * TIMES.retry)
    assert operators.share() == {"b": 3}
    assert operators.tasks["a"].done()
    await operators.end()


@virtual_time
async def test_an_operator_that_loses_its_leases_stops_its_shards_and_takes_them_again() -> None:
    gateway = FakeGateway()
    operators = SharingOperators(gateway)
    operators.start("a")
    await asyncio.sleep(20.0)
    gateway.fail("get", LEASES, NO_ANSWER, times=10_000)
    await asyncio.sleep(TIMES.renew_deadline + 1.0)
    assert operators.running == {}
    gateway.heal()
    await asyncio.sleep(TIMES.duration + 20.0)
    assert operators.share() == {"a": 3}
    await operators.end()


@virtual_time
async def test_an_operator_without_shards_ends_when_it_cannot_renew_its_lease() -> None:
    gateway = FakeGateway()
    operators = SharingOperators(gateway, shards=1)
    operators.start("a")
    await asyncio.sleep(5.0)
    assert operators.share() == {"a": 1}
    gateway.fail("get", LEASES, NO_ANSWER, times=10_000)
    with pytest.raises(LeaseLost, match="lease here/dtj-operator was not renewed for 10 s"):
        await operators.tasks.pop("a")
    assert operators.running == {}


@pytest.mark.parametrize(("held_with", "ours"), [(2, 3), (3, 2), (1, 2)])
@virtual_time
async def test_an_operator_with_another_number_of_shards_ends_with_one_line_that_names_both(
    held_with: int, ours: int
) -> None:
    operators = SharingOperators(FakeGateway(), held_with)
    operators.start("a")
    await asyncio.sleep(20.0)
    operators.start("b", shards=ours)
    await asyncio.wait([operators.tasks["b"]])
    error = operators.tasks.pop("b").exception()
    assert isinstance(error, SettingsError)
    assert re.fullmatch(
        rf"lease here/dtj-operator(-\d)? is held with --shards={held_with} by a, but --shards is {ours} here: "
        "give all operators the same number",
        str(error),
    )
    await asyncio.sleep(20.0)
    assert operators.share() == {"a": held_with}
    await operators.end()


@virtual_time
async def test_after_an_update_to_one_shard_the_new_operator_waits_for_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator that ended would keep a rolling update from going on."""
    operators = SharingOperators(FakeGateway(), 3)
    operators.start("old")
    await asyncio.sleep(20.0)
    operators.start("new", shards=1)
    await asyncio.sleep(20.0)
    assert caplog.text.count("this operator, with one shard, waits for the lease") == 1
    operators.stops["old"].set()
    await asyncio.sleep(5.0)
    assert operators.running == {0: "new"}
    lease = operators.gateway.body(LEASES, "dtj-operator", namespace="here")
    assert dig(lease, "metadata", "annotations", SHARDS) is None
    await operators.end()


def test_the_shard_of_a_namespace_is_the_same_in_every_process_and_version() -> None:
    """Other numbers would have two operators of different versions run the same jobs."""
    assert [shard_of(name, 3) for name in ("default", "vision", "team-a", "team-b", "")] == [1, 1, 0, 2, 1]


def test_one_shard_has_all_namespaces() -> None:
    assert {shard_of(f"team-{number}", 1) for number in range(100)} == {0}


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_have_about_as_many_namespaces_each(shards: int) -> None:
    numbers = Counter(shard_of(f"team-{number}", shards) for number in range(10_000))
    assert sorted(numbers) == list(range(shards))
    assert max(numbers.values()) < 1.1 * min(numbers.values())


@pytest.mark.parametrize(
    ("holders", "asked"),
    [
        (["a", "a"], 0),
        (["b", "a", "a"], 1),
        (["a", "b", "me", "b", "b"], 1),
        (["a", "me"], None),
        (["a", "a", "me"], None),
        (["a"], None),
        (["me", "me", "a"], None),
        (["a", "a", ""], None),
        (["a", "a", None], None),
        ([], None),
    ],
)
def test_the_operator_with_the_most_shards_is_asked_if_it_has_two_more(
    holders: list[str | None], asked: int | None
) -> None:
    assert shard_to_ask_for(holders, "me") == asked


@pytest.mark.parametrize(
    ("holders", "turns"),
    [
        (["", "", ""], 0),
        ([None, "a", ""], 0),
        (["me", "", ""], 1),
        (["me", "a", ""], 1),
        (["me", "a", "a", ""], 1),
        (["me", "me", "a", ""], 2),
        (["me", "me", "me", "a", "b", "b", ""], 3),
        (["me", "me", "me", ""], 1),
    ],
)
def test_an_operator_leaves_a_free_shard_the_longer_to_others_the_more_it_holds_itself(
    holders: list[str | None], turns: int
) -> None:
    assert turns_to_wait(holders, "me") == turns
