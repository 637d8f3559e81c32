"""A proxy between a client and the real API server, which may answer some calls itself.

The client speaks plain HTTP to it, and needs no credentials; the proxy speaks to the API server as an administrator.
What it lets through is not changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import aiohttp
from aiohttp import web

from support.kubeconfigs import kubeconfig
from support.web_server import served
from testbed import ControlPlane

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive", "upgrade"})


@dataclass(frozen=True)
class Call:
    """One call of the client's."""

    resource: str
    """The plural, with the subresource: ``pods``, ``pods/log``; empty for discovery."""

    name: str
    query: Mapping[str, str]

    @classmethod
    def of(cls, request: web.Request) -> Call:
        """Read a request."""
        parts = [part for part in request.path.split("/") if part]
        parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
        if parts[:1] == ["namespaces"]:
            parts = parts[2:]
        return cls("/".join([*parts[:1], *parts[2:]]), parts[1] if len(parts) > 1 else "", dict(request.query))


Forward: TypeAlias = Callable[[], Awaitable[web.StreamResponse]]
Answer: TypeAlias = Callable[[Call, Forward], Awaitable[web.StreamResponse]]
"""What becomes of a call: await the second argument to have it carried out by the API server."""


def refusal(code: int, *, reason: str, message: str) -> web.Response:
    """An answer as the API server gives it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response({**status, "message": message}, status=code)


@contextlib.contextmanager
def proxied(plane: ControlPlane, user: str, answer: Answer, folder: Path) -> Iterator[Path]:
    """A kubeconfig in a folder for clients behind the proxy, which runs in a thread of its own."""
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def run() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        async with _serving(plane, user, answer) as url:
            started.set_result((url, lambda: loop.call_soon_threadsafe(over.set)))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    url, stop = started.result(60.0)
    try:
        yield kubeconfig(folder, url)
    finally:
        stop()
        thread.join()


@contextlib.asynccontextmanager
async def _serving(plane: ControlPlane, user: str, answer: Answer) -> AsyncIterator[str]:
    never = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(ssl=plane.tls_for(user, groups=["system:masters"]), limit=0)
    async with aiohttp.ClientSession(
        connector=connector, auto_decompress=False, timeout=never, trust_env=False
    ) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            body, headers = await request.read(), _kept(request.headers)
            async with session.request(
                request.method, plane.url + request.path_qs, headers=headers, data=body or None
            ) as reply:
                answered = web.StreamResponse(status=reply.status, headers=_kept(reply.headers))
                await answered.prepare(request)
                with contextlib.suppress(ConnectionError):
                    async for chunk in reply.content.iter_any():
                        await answered.write(chunk)
                return answered

        async def handle(request: web.Request) -> web.StreamResponse:
            return await answer(Call.of(request), lambda: forward(request))

        async with served(handle) as url:
            yield url


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP_BY_HOP}
