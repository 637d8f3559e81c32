"""A proxy between a client and the real API server, which may answer some calls itself.

The client speaks plain HTTP to it, and needs no credentials; the proxy speaks to the API server as one user. What it
lets through is not changed. Its coroutines belong to the event loop that :meth:`ApiProxy.start` ran on.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import aiohttp
from aiohttp import web

from support.kubeconfigs import kubeconfig

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


class ApiProxy:
    """One listening port, from :meth:`start` to :meth:`close`."""

    def __init__(self, url: str, tls: ssl.SSLContext, *, answer: Answer) -> None:
        self._url = url
        self._tls = tls
        self._answer = answer
        self._port = 0

    async def start(self) -> None:
        never = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=never, trust_env=False
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def kubeconfig(self, directory: Path) -> Path:
        """A kubeconfig for the client behind this proxy."""
        return kubeconfig(directory, f"http://127.0.0.1:{self._port}")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(Call.of(request), lambda: self._forward(request))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body, headers = await request.read(), _kept(request.headers)
        async with self._session.request(
            request.method, self._url + request.path_qs, headers=headers, data=body or None
        ) as reply:
            answer = web.StreamResponse(status=reply.status, headers=_kept(reply.headers))
            await answer.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for chunk in reply.content.iter_any():
                    await answer.write(chunk)
            return answer


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP_BY_HOP}
