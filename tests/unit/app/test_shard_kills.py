"""Whenever an operator of a shard is killed, and also if two run the same shard, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from pydantic import JsonValue

from builders import manifest
from dtj.api.json import JsonObject, dig
from dtj.app.shard_leases import namespaces_of, shard_of
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine
from dtj.kube.gateway import JOBS, PODS, SERVICES, Discovery, Gateway, Listing, Resource, WatchEvent
from support.engine_harness import EPOCH, QUICK
from support.fake_gateway import FakeGateway
from support.sharing_operators import SharingOperators
from support.virtual_time import virtual_time

SHARDS = 3
NAMESPACES = ("team-a", "team-b", "vision")
"""One in each shard."""

LATENCY = 0.01
COUNTED = (JOBS.plural, PODS.plural, SERVICES.plural)


class Moment(Enum):
    """When an operator is killed: before its write reaches the API server, or before the answer reaches it."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class Connection:
    """One operator's connection, which counts the writes to jobs and what they own, and kills at one of them."""

    server: FakeGateway
    kill: Callable[[], None] = lambda: None
    at: tuple[int, Moment] | None = None
    writes: int = 0
    dead: bool = field(default=False)

    async def _write(
        self, resource: Resource, dry_run: bool, call: Callable[[], Awaitable[JsonObject | None]]
    ) -> object:
        if self.dead:
            await asyncio.Event().wait()
        if resource.plural not in COUNTED or dry_run:
            return await call()
        self.writes += 1
        moment = self.at[1] if self.at is not None and self.at[0] == self.writes else None
        if moment is Moment.BEFORE:
            await self._die()
        answer = await call()
        if moment is Moment.AFTER:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.dead = True
        self.kill()
        await asyncio.Event().wait()

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        return await self._write(  # type: ignore[return-value]
            resource, dry_run, lambda: self.server.create(resource, namespace=namespace, body=body, dry_run=dry_run)
        )

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        return await self._write(  # type: ignore[return-value]
            resource,
            False,
            lambda: self.server.patch(resource, namespace=namespace, name=name, patch=patch, subresource=subresource),
        )

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str = "", resource_version: str = ""
    ) -> None:
        await self._write(
            resource,
            False,
            lambda: self.server.delete(
                resource, namespace=namespace, name=name, uid=uid, resource_version=resource_version
            ),
        )

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        return await self.server.list(resource, namespace=namespace, selector=selector)

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        return self.server.pages(resource, namespace=namespace, selector=selector)

    def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        return self.server.watch(resource, namespace=namespace, selector=selector, resource_version=resource_version)

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        return await self.server.get(resource, namespace=namespace, name=name)

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        return await self.server.discover(resources)


class RealOperators(SharingOperators):
    """Operators with the real engine and planner. They list the jobs every second."""

    def __init__(self, gateway: FakeGateway, kill_at: tuple[int, Moment] | None = None) -> None:
        super().__init__(gateway, SHARDS)
        self.connections: dict[str, Connection] = {}
        self.kill_at = kill_at
        self.killing: list[asyncio.Task[None]] = []

    def connection(self, name: str) -> Gateway:
        if name not in self.connections:
            at = self.kill_at if name == "a" else None
            self.connections[name] = Connection(self.gateway, lambda: self._kill_soon(name), at)
        return self.connections[name]

    def _kill_soon(self, name: str) -> None:
        self.killing.append(asyncio.create_task(self.kill(name)))

    async def work(self, name: str, shard: int, leave: asyncio.Event) -> None:
        await operate(self.connection(name), shard, leave)


async def operate(gateway: Gateway, shard: int, leave: asyncio.Event) -> None:
    """Run one shard until ``leave``, as the operator does, with a list in place of kopf's watch."""
    engine = Engine(
        gateway,
        plan=plan,
        platform=Platform(),
        instance="test",
        settings=QUICK,
        now=lambda: EPOCH,
        keep=namespaces_of(shard, SHARDS),
    )

    async def list_jobs() -> None:
        while True:
            await engine.feed.relist(gateway, None)
            kept = {record.namespace for record in engine.state.jobs}
            assert kept <= {name for name in NAMESPACES if shard_of(name, SHARDS) == shard}
            await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(engine.run())
        listing = group.create_task(list_jobs())
        await leave.wait()
        engine.stop()
        await asyncio.wait([working])
        listing.cancel()


def with_jobs() -> FakeGateway:
    """An API server with a job of two workers in each namespace."""
    gateway = FakeGateway(latency=LATENCY)
    for namespace in NAMESPACES:
        body = manifest("digits", roles={"worker": 2})
        gateway.put(JOBS, {**body, "metadata": {"name": "digits", "namespace": namespace, "generation": 1}})
    return gateway


def created(gateway: FakeGateway) -> dict[str, int]:
    """How often each pod and Service was created."""
    return Counter(
        f"{resource.plural} {dig(line.body, 'metadata', 'namespace')}/{dig(line.body, 'metadata', 'name')}"
        for resource in (PODS, SERVICES)
        for line in gateway.history(resource)
        if line.type == "ADDED"
    )


def run_pods(gateway: FakeGateway) -> None:
    """All pods that are there become ready."""
    ready: JsonObject = {"type": "Ready", "status": "True"}
    for namespace in NAMESPACES:
        for index in range(2):
            with suppress(KeyError):
                pod = gateway.body(PODS, f"digits-worker-{index}", namespace=namespace)
                if dig(pod, "status", "phase") != "Running":
                    gateway.put(PODS, {**pod, "status": {"phase": "Running", "conditions": [ready]}})


def end(gateway: FakeGateway) -> tuple[dict[str, int], dict[str, JsonValue]]:
    """All that must be the same, however often an operator was killed."""
    statuses = {name: dig(gateway.body(JOBS, "digits", namespace=name), "status") for name in NAMESPACES}
    return created(gateway), statuses


async def run_until_rest(kill_at: tuple[int, Moment] | None) -> tuple[RealOperators, FakeGateway]:
    """Two operators and three shards, until the jobs run and what was killed is taken over."""
    gateway = with_jobs()
    operators = RealOperators(gateway, kill_at)
    operators.start("a")
    await asyncio.sleep(1.0)
    run_pods(gateway)
    await asyncio.sleep(2.0)
    operators.start("b")
    await asyncio.sleep(20.0)
    run_pods(gateway)
    await asyncio.sleep(5.0)
    assert not [task.result() for task in operators.tasks.values() if task.done()]
    assert operators.share().total() == SHARDS
    await operators.end()
    return operators, gateway


@virtual_time
async def test_the_end_is_the_same_whichever_write_is_an_operators_last() -> None:
    operators, gateway = await run_until_rest(None)
    expected = end(gateway)
    writes = operators.connections["a"].writes
    assert len(expected[0]) == 9
    assert set(expected[0].values()) == {1}
    assert writes >= 5 * SHARDS
    wrong = []
    for number in range(1, writes + 1):
        for moment in Moment:
            operators, gateway = await run_until_rest((number, moment))
            assert operators.killing, f"write {number} was not reached"
            if end(gateway) != expected:
                wrong.append((number, moment, end(gateway)))
    assert wrong == []


@virtual_time
async def test_two_operators_that_both_run_a_shard_create_nothing_twice() -> None:
    """A process that was frozen for longer than its lease lasts wakes up as a second leader."""
    gateway = with_jobs()
    leave = asyncio.Event()
    leaders = [asyncio.create_task(operate(gateway, shard, leave)) for shard in range(SHARDS) for _ in range(2)]
    await asyncio.sleep(3.0)
    run_pods(gateway)
    await asyncio.sleep(5.0)
    found, statuses = end(gateway)
    assert len(found) == 9
    assert set(found.values()) == {1}
    assert [dig(status, "state") for status in statuses.values()] == ["Running"] * SHARDS
    leave.set()
    await asyncio.gather(*leaders)
