"""Health and metrics over HTTP, from the first moment on.

kopf has a health endpoint too, but it answers only once kopf runs, and kopf starts only once the CRD is there:
an operator that waits for its CRD would be killed by its own liveness probe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

LONGEST_STANDSTILL_SECONDS: Final = 600.0
"""A pass of which no call is answered for longer hangs: each call to the API server has a time limit of its own. A pass
that creates many pods, some a second, may take longer."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HealthPortTaken(Exception):
    """A port is not available."""


def health_routes(
    *, longest_standstill: Callable[[], float], failing: Callable[[], str], ready: Callable[[], bool]
) -> dict[str, Handler]:
    """``/healthz``: no worker hangs, and no task fails again and again.

    ``/readyz``: the stores are complete, so that jobs are acted on."""

    async def healthz(_: web.Request) -> web.Response:
        seconds = longest_standstill()
        if seconds > LONGEST_STANDSTILL_SECONDS:
            return web.Response(status=500, text=f"a pass has stood still for {seconds:.0f} s\n")
        if words := failing():
            return web.Response(status=500, text=f"{words}\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="waiting for the API server\n")

    return {"/healthz": healthz, "/readyz": readyz}


def metrics_routes(registry: CollectorRegistry) -> dict[str, Handler]:
    """``/metrics`` in Prometheus' text format."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return {"/metrics": metrics}


@asynccontextmanager
async def serving(port: int, routes: dict[str, Handler]) -> AsyncIterator[None]:
    """Serve ``routes`` on ``port`` of all interfaces within the block; nothing where ``port`` is 0.

    Raises HealthPortTaken.
    """
    if port == 0:
        yield
        return
    app = web.Application()
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, None, port).start()
        except OSError as error:
            raise HealthPortTaken(f"cannot listen on port {port}: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()
