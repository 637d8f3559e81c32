"""Operators of one namespace, one after the other, each behind a proxy that may end it at any of its writes.

Most are the operator's real parts in this process: gateway, engine, planner, and kopf's watch on jobs.
Such an operator starts in milliseconds. To be killed means for it that nothing passes its proxy any more, in either
direction, and that its tasks are cancelled: what it might still do on its way out reaches nobody. Others are real
processes, killed by SIGKILL.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import kopf
from aiohttp import web
from kubernetes.aio.client import Configuration

from dtj.app.watch import JobWatch
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from support.api_proxy import ApiProxy, Call, Cut, Forward, Upstream
from support.operator_process import OperatorProcess

_LAST_WORD_SECONDS = 0.02
"""How long an operator that dies after an answer has to read it. Nothing that it does then reaches anybody."""


class Moment(StrEnum):
    """When an operator is killed, as seen from one of its writes."""

    UNSENT = "unsent"
    """Before the write reaches the API server."""

    BEFORE = "before"
    """When the write has taken effect, before its answer arrives."""

    AFTER = "after"
    """When the answer has arrived, before anything else is done."""


@dataclass(frozen=True)
class KillPoint:
    """When the first operator dies: at its n-th write, counted from 1."""

    write: int
    moment: Moment


class Operator(Protocol):
    """One that can be started and killed; both from the proxy's event loop."""

    async def start(self) -> None: ...

    async def kill(self) -> None: ...


WITH_CONFIG_MAPS = Platform(inline_addresses=0)
"""On which a job of any size has a ConfigMap with its addresses."""


class TaskOperator:
    """The operator's parts in this process."""

    def __init__(self, url: str, namespace: str, *, authority: Path) -> None:
        self._configuration = Configuration(host=url)
        # Never used, but to read all that the system trusts would take longer than the rest of the start.
        self._configuration.ssl_ca_cert = str(authority)
        self._namespace = namespace

    async def start(self) -> None:
        self._gateway = KubeGateway(self._configuration, source=ConnectionSource())
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._gateway.close()
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        engine = Engine(
            self._gateway, plan=plan, platform=WITH_CONFIG_MAPS, instance="task", namespaces=(self._namespace,)
        )
        watch = JobWatch(engine.feed, self._connection, namespaces=(self._namespace,))
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run())
            group.create_task(watch.run())

    async def _connection(self) -> kopf.ConnectionInfo:
        configuration = self._configuration
        return kopf.ConnectionInfo(server=configuration.host, ca_path=configuration.ssl_ca_cert, trust_env=False)


class WholeOperator:
    """The operator as a process, with kopf."""

    def __init__(self, kubeconfig: Path, namespace: str, *, log: Path) -> None:
        self._process = OperatorProcess(kubeconfig, f"--namespace={namespace}", log=log)

    async def start(self) -> None:
        self._process.start()

    async def kill(self) -> None:
        self._process.kill()


class OperatorRuns:
    """The operators of one namespace. ``calls`` are those of all of them, in the order in which they came."""

    def __init__(
        self, upstream: Upstream, make: Callable[[ApiProxy], Operator], *, kill_point: KillPoint | None = None
    ) -> None:
        self.deaths = 0
        self.killed_at = ""
        self._upstream = upstream
        self._make = make
        self._kill_point = kill_point
        self._writes = itertools.count(1)
        self._proxies: list[ApiProxy] = []
        self._operator: Operator | None = None
        self._dying = False
        self._news = threading.Condition()
        self._answers = 0
        self._successions: list[asyncio.Task[None]] = []

    @property
    def calls(self) -> list[Call]:
        return [call for proxy in self._proxies for call in proxy.calls]

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.writes]

    async def begin(self) -> None:
        """Start an operator."""
        proxy = ApiProxy(
            self._upstream,
            trouble=self._mortally if self._kill_point and not self.deaths else _freely,
            on_answer=self._tell,
        )
        await proxy.start()
        self._proxies.append(proxy)
        self._operator = self._make(proxy)
        await self._operator.start()

    async def end(self) -> None:
        """Kill the operator that lives."""
        await asyncio.gather(*self._successions)
        await self._kill()
        for proxy in self._proxies:
            await proxy.close()

    @property
    def answers(self) -> int:
        """How many writes have been answered."""
        return self._answers

    @property
    def busy(self) -> bool:
        """Whether a write is on its way, or an operator is just being replaced."""
        return any(math.isinf(call.over_at) for call in self.writes) or not all(
            succession.done() for succession in self._successions
        )

    @property
    def doomed(self) -> bool:
        """Whether an operator still has to die."""
        return self._kill_point is not None and not self.deaths

    def await_news(self, seen: int, *, seconds: float) -> bool:
        """Wait until more than ``seen`` writes are answered; False where none was. For threads, not for the loop."""
        with self._news:
            return self._news.wait_for(lambda: self._answers != seen, seconds)

    async def _mortally(self, call: Call, forward: Forward) -> web.StreamResponse:
        if self._dying:
            raise Cut
        if not call.writes:
            return await forward()
        assert self._kill_point is not None
        fatal = next(self._writes) == self._kill_point.write
        if fatal and self._kill_point.moment is Moment.UNSENT:
            self._die(call)
            raise Cut
        answer = await forward()
        if fatal and self._kill_point.moment is Moment.BEFORE:
            self._die(call)
            raise Cut
        if fatal:
            self._dying = True
            asyncio.get_running_loop().call_later(_LAST_WORD_SECONDS, self._die, call)
        return answer

    def _die(self, call: Call) -> None:
        self._dying = True
        self.deaths += 1
        self.killed_at = str(call)
        self._proxies[-1].cut_off()
        self._successions.append(asyncio.create_task(self._succeed()))

    async def _succeed(self) -> None:
        await self._kill()
        await self.begin()

    async def _kill(self) -> None:
        if self._operator is not None:
            self._proxies[-1].cut_off()
            operator, self._operator = self._operator, None
            await operator.kill()

    def _tell(self, call: Call) -> None:
        if call.writes:
            with self._news:
                self._answers += 1
                self._news.notify_all()


async def _freely(_: Call, forward: Forward) -> web.StreamResponse:
    return await forward()
