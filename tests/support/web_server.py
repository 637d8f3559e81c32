"""A web server on loopback of one function that answers, and the gateway that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from kubernetes.aio.client import Configuration

from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    """Let ``answer`` answer every request; gives the server's URL."""
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway_at(url: str) -> AsyncIterator[KubeGateway]:
    """A gateway to an API server that is played."""
    configuration = Configuration(host=url)
    configuration.client_session_kwargs = {"trust_env": False}
    gateway = KubeGateway(configuration, source=ConnectionSource())
    try:
        yield gateway
    finally:
        await gateway.close()
