"""Operators that share the shards of one API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from dtj.app import run
from dtj.app.settings import OperatorSettings
from dtj.app.shard_leases import shard_leases
from dtj.kube.lease import Lease
from support.fake_gateway import FakeGateway


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
