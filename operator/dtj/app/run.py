"""The operator's process: puts the parts together, keeps them running, and takes them down together.

The engine, the lease and the HTTP endpoints run in one event loop, kopf in another (see :mod:`dtj.app.watch`). When
one of them ends unexpectedly, the whole process ends, and says why: a restarted operator is safe at any point, half an
operator is not. The tasks within an engine, and kopf, are started again (:mod:`dtj.engine.supervision`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any

from dtj import __version__
from dtj.api.form import DTJ, Form
from dtj.api.tfjob.form import TFJOB
from dtj.app.health import health_routes, metrics_routes, serving
from dtj.app.kopf_session import connection_info
from dtj.app.settings import OperatorSettings
from dtj.app.startup import wait_until_served
from dtj.app.watch import JobWatch
from dtj.core.planner import plan
from dtj.core.platform import PLATFORM_OF_TFJOBS, Platform, ReplicaServiceNetwork
from dtj.engine.engine import Engine, EngineSettings
from dtj.engine.metrics import DROPPED, LEADER, THROTTLED, Metrics
from dtj.kube.client import KubeGateway
from dtj.kube.lease import Lease
from dtj.kube.tfjob_schema import keeps_record

log = logging.getLogger("dtj.app")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run(settings: OperatorSettings) -> None:
    """Operate until SIGTERM or SIGINT.

    Raises SettingsError, ConfigError, CredentialsRefused or HealthPortTaken if it cannot start, and LeaseLost if it
    must not continue. Any other error is a defect of one of the parts.
    """
    stop = asyncio.Event()
    _stop_on_signals(stop)
    # Not before: who reads this line may stop the operator at once, and expects it to end in peace.
    log.info("dtj-operator %s runs jobs of %s", __version__, _scope(settings))
    await _serve(settings, _platforms(settings), stop)


def _platforms(settings: OperatorSettings) -> dict[Form, Platform]:
    """The forms of the jobs that we run, each with what its pods are made for."""
    platforms = {
        DTJ: Platform(
            profiles=settings.profiles(),
            restricted=settings.restricted,
            trainer_image=settings.trainer_image,
            trainer_log_format=settings.trainer_log_format,
            job_access=settings.network_policies,
        )
    }
    if settings.tfjobs:
        platforms[TFJOB] = replace(
            PLATFORM_OF_TFJOBS,
            network=ReplicaServiceNetwork(settings.tfjob_cluster_domain),
            clean_pod_policy=settings.tfjob_clean_pod_policy,
            gang_of_tfjobs=settings.tfjob_gang_scheduler,
            queues_tfjobs=settings.tfjob_queues,
        )
    return platforms


async def _serve(settings: OperatorSettings, platforms: dict[Form, Platform], stop: asyncio.Event) -> None:
    """Have the endpoints answer, wait for the CRD, and run the engines while we lead."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        gateway, lease = await _connect(stack, settings, metrics), None
        if settings.leader_elect and settings.lease_namespace is not None:
            # Over connections of its own: a renewal that waits behind the creation of pods comes too late.
            lease = Lease(
                await _connect(stack, settings, metrics),
                namespace=settings.lease_namespace,
                name=settings.lease_name,
                identity=f"{settings.instance}_{token_hex(4)}",  # no two processes share one, not even on one host
                throttled=lambda: gateway.throttle.limited,
            )
        engines = _Engines(gateway, settings, platforms, metrics, lease=lease)
        health = health_routes(
            longest_standstill=engines.longest_standstill, failing=engines.failing, ready=engines.ready
        )
        await stack.enter_async_context(serving(settings.health_port, health))
        await stack.enter_async_context(serving(settings.metrics_port, metrics_routes(metrics.registry)))
        if await _unless_stopped(stop, wait_until_served(gateway)):
            operate = partial(engines.run, stop)
            await (operate() if lease is None else _lead(lease, operate, stop))


async def _connect(stack: AsyncExitStack, settings: OperatorSettings, metrics: Metrics) -> KubeGateway:
    """Connections to the API server, which are closed with the stack."""
    gateway = await KubeGateway.connect(settings.connection, observe=metrics.called)
    stack.push_async_callback(gateway.close)
    return gateway


class _Engines:
    """The engines, one for each form of jobs, and what probes and metrics say of them. There are none until we lead."""

    def __init__(
        self,
        gateway: KubeGateway,
        settings: OperatorSettings,
        platforms: Mapping[Form, Platform],
        metrics: Metrics,
        *,
        lease: Lease | None,
    ) -> None:
        self._gateway = gateway
        self._settings = settings
        self._platforms = platforms
        self._metrics = metrics
        self._lease = lease
        self._engines: list[Engine] = []
        metrics.watch_state(THROTTLED, lambda: gateway.throttle.limited)
        metrics.watch_state(DROPPED, lambda: any(engine.drops_record for engine in self._engines))
        metrics.watch_state(LEADER, lambda: lease is None or lease.leading)

    def longest_standstill(self) -> float:
        """Seconds for which no call of a pass has been answered."""
        return max((engine.queue.longest_standstill() for engine in self._engines), default=0.0)

    def failing(self) -> str:
        """Which task fails although it is started again and again; empty if there is none."""
        return next((engine.failing for engine in self._engines if engine.failing), "")

    def ready(self) -> bool:
        """Whether we act on jobs, or know which operator does: an operator that stands by is ready, too."""
        if self._engines:
            return self._engines[0].synced
        return self._lease is not None and self._lease.holder is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Operate until ``stop``; what has begun gets its time then. An error that ends one engine ends all.

        Raises CredentialsRefused; any other error is a defect.
        """
        self._engines = [self._make(form, platform) for form, platform in self._platforms.items()]
        try:
            async with asyncio.TaskGroup() as group:
                for engine in self._engines:
                    group.create_task(self._run(engine, stop), name=f"engine of {engine.feed.resource.plural}")
                await stop.wait()
                for engine in self._engines:
                    engine.stop()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _run(self, engine: Engine, stop: asyncio.Event) -> None:
        """One engine, with its watch on jobs."""
        resource, settings = engine.feed.resource, self._settings
        # The CRD of TFJobs may come later than the operator. In namespaces alone, a watch from before would not notice.
        if await _unless_stopped(stop, wait_until_served(self._gateway, resource)):
            connect = partial(connection_info, settings.connection)
            await engine.run(watch=JobWatch(engine.feed, connect, namespaces=settings.namespaces).run)
            if not stop.is_set():
                raise RuntimeError(f"the engine of {resource.plural} ended unexpectedly")

    def _make(self, form: Form, platform: Platform) -> Engine:
        settings = self._settings
        return Engine(
            self._gateway,
            plan=plan,
            form=form,
            platform=platform,
            instance=settings.instance,
            namespaces=settings.watched_namespaces,
            settings=EngineSettings(workers=settings.workers, relist_every=settings.relist_seconds),
            metrics=self._metrics,
            now=self._gateway.clock.now,
            keeps_record=partial(keeps_record, self._gateway) if form.recorded_in else None,
        )


def _scope(settings: OperatorSettings) -> str:
    if not settings.namespaces:
        return "all namespaces"
    return f"namespace{'s' if len(settings.namespaces) > 1 else ''} {', '.join(settings.namespaces)}"


async def _lead(lease: Lease, operate: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run ``operate`` once the lease is ours, and give it back when nothing works any more. Raises LeaseLost."""
    if not await _unless_stopped(stop, lease.acquire()):
        await lease.release()
        return
    operating = asyncio.create_task(operate(), name="operating")
    holding = asyncio.create_task(lease.hold(), name="lease")
    try:
        await _first_of(operating, holding)
    except asyncio.CancelledError:
        for part in (operating, holding):
            part.cancel()
        raise
    if not operating.done():
        operating.cancel()
        await asyncio.wait([operating])
        holding.result()
    holding.cancel()
    await lease.release()
    operating.result()


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
    try:
        await _first_of(task, stop.wait())
    finally:
        task.cancel()  # also where we are cancelled; one that is done stays done
    if task.done():
        task.result()
    return task.done()
