"""A proxy between one operator and the real API server: it counts every call, and may make trouble with any.

The operator speaks plain HTTP to it, and needs no credentials; the proxy speaks to the API server as the operator's
user. What it lets through is not changed. Its coroutines belong to the event loop that :meth:`ApiProxy.start` ran on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import aiohttp
import yaml
from aiohttp import web

from dtj.api.json import JsonObject, dig, text

WRITES = frozenset({"create", "patch", "delete"})

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive", "upgrade"})


@dataclass(eq=False)
class Call:
    """One call of the operator's."""

    method: str
    url: str
    body: bytes = field(repr=False)
    at: float
    """When it came, by the monotonic clock."""

    verb: str = ""
    """``list``, ``watch``, ``get``, ``create``, ``patch`` or ``delete``."""

    resource: str = ""
    """The plural, with the subresource: ``pods``, ``distributedtrainingjobs/status``; empty for discovery."""

    name: str = ""
    dry_run: bool = False
    status: int = 0
    """The API server's own answer; 0 where it was not asked, or did not answer."""

    over_at: float = math.inf
    """When the proxy was done with it."""

    answered: int = 0
    """The status that the operator got; 0 for no answer."""

    request: web.Request | None = field(default=None, repr=False)
    """The request itself, for a trouble that answers by a websocket."""

    def __str__(self) -> str:
        what = " ".join(part for part in (self.verb, self.resource, self.name) if part)
        return f"{what}{' (dry run)' if self.dry_run else ''}"

    @property
    def kind(self) -> str:
        """``create pods``, ``watch services``…"""
        return f"{self.verb} {self.resource}"

    @property
    def writes(self) -> bool:
        """Whether it changes something. A dry run does not."""
        return self.verb in WRITES and not self.dry_run

    @property
    def took_effect(self) -> bool:
        """Whether the API server did what it was asked for, whatever answer the operator got."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def object(self) -> JsonObject:
        """What was sent."""
        found: JsonObject = json.loads(self.body) if self.body else {}
        return found

    @classmethod
    def of(cls, request: web.Request, body: bytes) -> Call:
        """Read a request."""
        call = cls(request.method, request.path_qs, body, time.monotonic(), request=request)
        query = parse_qs(urlsplit(call.url).query)
        parts = [part for part in request.path.split("/") if part]
        parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
        if parts[:1] == ["namespaces"]:
            parts = parts[2:]
        call.dry_run = "dryRun" in query
        call.resource = "/".join([*parts[:1], *parts[2:]])
        call.name = parts[1] if len(parts) > 1 else ""
        reading = "watch" if "watch" in query else "get" if call.name or not parts else "list"
        call.verb = {"GET": reading, "POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(call.method, "")
        if call.verb == "create":
            call.name = text(dig(call.object, "metadata", "name"))
        return call


class Cut(Exception):
    """The connection breaks, and the operator gets no answer."""


Forward: TypeAlias = Callable[[], Awaitable[web.StreamResponse]]
Trouble: TypeAlias = Callable[[Call, Forward], Awaitable[web.StreamResponse]]
"""What becomes of a call: await the second argument to have it carried out, raise Cut to leave it unanswered."""


async def no_trouble(_: Call, forward: Forward) -> web.StreamResponse:
    """Let everything through."""
    return await forward()


def refusal(
    code: int, *, reason: str, message: str = "trouble that is made on purpose", retry_after: int | None = None
) -> web.Response:
    """An answer as the API server gives it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    details = {} if retry_after is None else {"details": {"retryAfterSeconds": retry_after}}
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response({**status, "message": message, **details}, status=code, headers=headers)


class Upstream:
    """The way to the real API server, as one user; shared by any number of proxies of one event loop."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        self.url = url
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
            never = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=never, trust_env=False
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class ApiProxy:
    """One listening port. ``calls`` are all calls that came, in order."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        trouble: Trouble = no_trouble,
        on_answer: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self.trouble = trouble
        self.calls: list[Call] = []
        self.port = 0
        self._upstream = upstream
        self._on_answer = on_answer
        self._closed = False
        self._connections: set[asyncio.Transport] = set()
        self._watches: dict[asyncio.Task[object], Call] = {}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    def cut_off(self) -> None:
        """From now on nothing passes any more, in either direction. What has reached the API server takes its way."""
        self._closed = True
        self.cut_watches()
        for connection in list(self._connections):
            connection.abort()

    def cut_watches(self) -> None:
        """Break all open watches."""
        for watch in list(self._watches):
            watch.cancel()

    async def close(self) -> None:
        self.cut_off()
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, directory: Path) -> Path:
        """A kubeconfig for the operator behind this proxy."""
        return write_kubeconfig(directory / f"proxy-{self.port}.kubeconfig", server=self.url)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if self._closed or transport is None:
            return _abort(transport)
        self._connections.add(transport)
        call = Call.of(request, await request.read())
        self.calls.append(call)
        try:
            answer = await self.trouble(call, lambda: self._forward(call, request))
        except Cut:
            return _abort(transport)
        except asyncio.CancelledError:
            if call.verb != "watch":
                raise
            return _abort(transport)
        finally:
            call.over_at = time.monotonic()
            self._on_answer(call)
        if self._closed:
            return _abort(transport)
        call.answered = answer.status
        return answer

    async def _forward(self, call: Call, request: web.Request) -> web.StreamResponse:
        if call.verb == "watch":
            return await self._stream(call, request)
        # What has left for the API server is carried out there, also when the operator dies meanwhile.
        return await asyncio.shield(asyncio.ensure_future(self._carry_out(call, request)))

    async def _carry_out(self, call: Call, request: web.Request) -> web.Response:
        async with self._ask(call, request) as reply:
            call.status = reply.status
            return web.Response(status=reply.status, headers=_kept(reply.headers), body=await reply.read())

    async def _stream(self, call: Call, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = call
        try:
            async with self._ask(call, request) as reply:
                call.status = call.answered = reply.status
                answer = web.StreamResponse(status=reply.status, headers=_kept(reply.headers))
                await answer.prepare(request)
                with contextlib.suppress(ConnectionError):
                    async for chunk in reply.content.iter_any():
                        await answer.write(chunk)
                return answer
        finally:
            del self._watches[task]

    @contextlib.asynccontextmanager
    async def _ask(self, call: Call, request: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._upstream.session.request(
                call.method, self._upstream.url + call.url, headers=_kept(request.headers), data=call.body or None
            ) as reply:
                yield reply
        except aiohttp.ClientError as error:
            raise Cut from error


def write_kubeconfig(path: Path, *, server: str) -> Path:
    """A kubeconfig without credentials."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def _abort(transport: asyncio.BaseTransport | None) -> web.Response:
    if isinstance(transport, asyncio.Transport):
        transport.abort()
    return web.Response()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP_BY_HOP}
