"""The operator's process: puts the parts together, keeps them running, and takes them down together.

The engine, the lease and the HTTP endpoints run in one event loop, kopf in another (see :mod:`dtj.app.watch`). When
one of them ends unexpectedly, the whole process ends, and says why: a restarted operator is safe at any point, half an
operator is not. The tasks within an engine, and kopf, are started again (:mod:`dtj.engine.supervision`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from secrets import token_hex
from typing import Any

from dtj import __version__
from dtj.api.form import DTJ, Form
from dtj.api.tfjob.form import TFJOB
from dtj.app.health import health_routes, metrics_routes, serving
from dtj.app.settings import OperatorSettings
from dtj.app.startup import wait_until_served
from dtj.app.watch import JobWatch, connection_info
from dtj.core.planner import plan
from dtj.core.platform import Platform, platform_of_tfjobs
from dtj.engine.engine import Engine, EngineSettings
from dtj.engine.metrics import Metrics
from dtj.kube.client import KubeGateway
from dtj.kube.gateway import JOBS
from dtj.kube.lease import Lease
from dtj.kube.tfjob_schema import keeps_record

log = logging.getLogger("dtj.app")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_ABANDON_SECONDS = 2.0
"""How long the watch and the engine may take to drop everything when the lease is lost; others wait 5 s for that."""


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
        domain = os.environ.get("CUSTOM_CLUSTER_DOMAIN", "")  # as Kubeflow's operator calls it
        platforms[TFJOB] = platform_of_tfjobs(
            domain,
            clean_pod_policy=settings.tfjob_clean_pod_policy,
            gang_of_tfjobs=settings.tfjob_gang_scheduler,
            queues_tfjobs=settings.tfjob_queues,
        )
    return platforms


async def _serve(settings: OperatorSettings, platforms: dict[Form, Platform], stop: asyncio.Event) -> None:
    """Have the endpoints answer, wait for the CRD, and run the engines while we lead."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:

        async def connect() -> KubeGateway:
            gateway = await KubeGateway.connect(settings.connection, observe=metrics.called)
            stack.push_async_callback(gateway.close)
            return gateway

        gateway = await connect()
        lease: Lease | None = None
        if settings.leader_elect and settings.lease_namespace is not None:
            # Over connections of its own: a renewal that waits behind the creation of pods comes too late.
            identity = f"{settings.instance}_{token_hex(4)}"  # no two processes share one, not even on one host
            lease = Lease(
                await connect(),
                namespace=settings.lease_namespace,
                name=settings.lease_name,
                identity=identity,
                throttled=lambda: gateway.throttle.limited,
            )
        engines: list[Engine] = []

        async def operate() -> None:
            engines.extend(_engine(gateway, settings, form, platform, metrics) for form, platform in platforms.items())
            await _operate(gateway, engines, settings, stop)

        def longest_standstill() -> float:
            return max((engine.queue.longest_standstill() for engine in engines), default=0.0)

        def failing() -> str:
            return next((engine.failing for engine in engines if engine.failing), "")

        def ready() -> bool:
            """Whether we act on jobs, or know which operator does: an operator that stands by is ready, too."""
            return engines[0].synced if engines else lease is not None and lease.holder is not None

        metrics.watch_throttle(lambda: gateway.throttle.limited)
        metrics.watch_record(lambda: any(engine.drops_record for engine in engines))
        metrics.watch_leader(lambda: lease is None or lease.leading)
        health = health_routes(longest_standstill=longest_standstill, failing=failing, ready=ready)
        await stack.enter_async_context(serving(settings.health_port, health))
        await stack.enter_async_context(serving(settings.metrics_port, metrics_routes(metrics.registry)))
        if await _unless_stopped(stop, wait_until_served(gateway)):
            await (operate() if lease is None else _lead(lease, operate, stop))


def _engine(
    gateway: KubeGateway, settings: OperatorSettings, form: Form, platform: Platform, metrics: Metrics
) -> Engine:
    """An engine for the jobs of a form."""
    return Engine(
        gateway,
        plan=plan,
        form=form,
        platform=platform,
        instance=settings.instance,
        namespaces=settings.watched_namespaces,
        settings=EngineSettings(workers=settings.workers, relist_every=settings.relist_seconds),
        metrics=metrics,
        now=gateway.clock.now,
        keeps_record=partial(keeps_record, gateway) if form.recorded_in else None,
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


async def _operate(
    gateway: KubeGateway, engines: Sequence[Engine], settings: OperatorSettings, stop: asyncio.Event
) -> None:
    """Run the engines, each with its watch on jobs, until ``stop``, or until one of them ends."""
    # The CRD of TFJobs may come later than the operator. A watch from before would not notice it in namespaces alone.
    served = {engine.feed.resource: asyncio.Event() for engine in engines}

    async def watch(engine: Engine) -> None:
        jobs = JobWatch(engine.feed, lambda: connection_info(settings.connection), namespaces=settings.namespaces)
        await served[engine.feed.resource].wait()
        await engine.supervise("watch on jobs", jobs.run)

    async def serve(engine: Engine) -> None:
        resource = engine.feed.resource
        if resource == JOBS or await _unless_stopped(stop, wait_until_served(gateway, resource)):
            served[resource].set()
            await engine.run()

    tasks = [asyncio.create_task(serve(engine), name=f"engine of {engine.feed.resource.plural}") for engine in engines]
    watches = [asyncio.create_task(watch(engine), name=f"watch on {engine.feed.resource.plural}") for engine in engines]
    parts = {*tasks, *watches}
    try:
        await _first_of(*parts, stop.wait())
        unexpected = [part.get_name() for part in parts if part.done()] if not stop.is_set() else []
        stop.set()
        for engine in engines:
            engine.stop()
        for task in watches:
            task.cancel()
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
