"""The operator's process: puts the parts together, keeps them running, and takes them down together.

The engine, the lease and the HTTP endpoints run in one event loop, kopf in another (see :mod:`dtj.app.watch`). When
one of them ends unexpectedly, the whole process ends, and says why: a restarted operator is safe at any point, half an
operator is not. If only kopf ends, it is started again.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from dtj.app.health import health_routes, metrics_routes, serving
from dtj.app.settings import OperatorSettings
from dtj.app.startup import wait_until_served
from dtj.app.watch import JobWatch, connection_info
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.engine.metrics import Metrics
from dtj.kube.client import KubeGateway
from dtj.kube.lease import Lease

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_ABANDON_SECONDS = 2.0
"""How long the watch and the engine may take to drop everything when the lease is lost; others wait 5 s for that."""


async def run(settings: OperatorSettings) -> None:
    """Operate until SIGTERM or SIGINT.

    Raises SettingsError, ConfigError, CredentialsRefused or PortTaken if it cannot start, and LeaseLost if it must
    not continue. Any other error is a defect of one of the parts.
    """
    platform = Platform(
        profiles=settings.profiles(),
        restricted=settings.restricted,
        trainer_image=settings.trainer_image,
        trainer_log_format=settings.trainer_log_format,
        job_access=settings.network_policies,
    )
    metrics = Metrics()
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        gateway = await KubeGateway.connect(settings.connection, observe=metrics.called)
        stack.push_async_callback(gateway.close)
        engine = Engine(
            gateway,
            plan=plan,
            platform=platform,
            instance=settings.instance,
            namespaces=settings.watched_namespaces,
            settings=EngineSettings(workers=settings.workers, relist_every=settings.relist_seconds),
            metrics=metrics,
            now=gateway.clock.now,
        )
        lease = await _lease(stack, metrics, settings)
        metrics.watch_leader(lambda: lease is None or lease.leading)
        health = health_routes(longest_pass=engine.queue.longest_running, ready=lambda: _ready(engine, lease))
        await stack.enter_async_context(serving(settings.health_port, health))
        await stack.enter_async_context(serving(settings.metrics_port, metrics_routes(metrics.registry)))
        if await _unless_stopped(stop, wait_until_served(gateway)):
            await _lead(lease, lambda: _operate(engine, settings, stop), stop)


async def _lease(stack: AsyncExitStack, metrics: Metrics, settings: OperatorSettings) -> Lease | None:
    """Our candidacy, if there is an election. No two processes share an identity, not even on one host.

    It has connections of its own: a renewal that waits behind the creation of pods comes too late.
    """
    if not settings.leader_elect or settings.lease_namespace is None:
        return None
    gateway = await KubeGateway.connect(settings.connection, observe=metrics.called)
    stack.push_async_callback(gateway.close)
    identity = f"{settings.instance}_{secrets.token_hex(4)}"
    return Lease(gateway, namespace=settings.lease_namespace, name=settings.lease_name, identity=identity)


def _ready(engine: Engine, lease: Lease | None) -> bool:
    """Whether we act on jobs, or know which operator does: an operator that stands by is ready, too."""
    if lease is None or lease.leading:
        return engine.synced
    return lease.holder is not None


async def _lead(lease: Lease | None, operate: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run ``operate`` once the lease is ours, and give it back when nothing works any more. Raises LeaseLost."""
    if lease is None:
        await operate()
        return
    if not await _unless_stopped(stop, lease.acquire()):
        await lease.release()
        return
    operating = asyncio.create_task(operate(), name="operating")
    holding = asyncio.create_task(lease.hold(), name="lease")
    await _first_of(operating, holding)
    if not operating.done():
        operating.cancel()
        await asyncio.wait([operating])
        holding.result()
    holding.cancel()
    await lease.release()
    operating.result()


async def _operate(engine: Engine, settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Run the engine and the watch on jobs side by side until ``stop``, or until one of them ends."""
    watch = JobWatch(engine.feed, lambda: connection_info(settings.connection), namespaces=settings.namespaces)
    engine_task = asyncio.create_task(engine.run(), name="engine")
    watch_task = asyncio.create_task(watch.run(), name="watch on jobs")
    parts = {engine_task, watch_task}
    try:
        await _first_of(*parts, stop.wait())
        unexpected = [part.get_name() for part in parts if part.done()] if not stop.is_set() else []
        stop.set()
        engine.stop()
        watch_task.cancel()
        await asyncio.wait(parts)
    finally:
        for part in parts:
            part.cancel()  # of use where we are cancelled: a lost lease leaves no time to finish anything
        await asyncio.wait(parts, timeout=_ABANDON_SECONDS)
    for part in parts:
        if not part.cancelled():
            part.result()
    if unexpected:
        raise RuntimeError(f"{' and '.join(unexpected)} ended unexpectedly")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)


async def _first_of(*waited_for: asyncio.Task[Any] | Coroutine[Any, Any, Any]) -> None:
    """Wait until one has ended; coroutines are cancelled then, tasks go on."""
    tasks = [item if isinstance(item, asyncio.Task) else asyncio.create_task(item) for item in waited_for]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, item in zip(tasks, waited_for, strict=True):
            if task is not item:
                task.cancel()


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Await ``work`` to its end; False where ``stop`` came first."""
    task = asyncio.create_task(work)
    await _first_of(task, stop.wait())
    if not task.done():
        task.cancel()
        return False
    task.result()
    return True
