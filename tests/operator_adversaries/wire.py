"""The API server of a sample: a FakeGateway in memory, asked by the operator's own client in the bytes of HTTP.

It writes JSON as Go does, in which ``<`` takes six bytes, and may answer badly for some time. What is on the way takes
no time, so that samples run in virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import aiohttp
import msgspec
from aiohttp.base_protocol import BaseProtocol
from kubernetes.aio.client import Configuration

from builders import at
from dtj.api.json import JsonObject, dig, text
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.errors import ApiError, TooManyRequests
from dtj.kube.gateway import Resource
from support.fake_gateway import FakeGateway
from support.virtual_time import loop_time

BUFFER: Final = 2**21
"""What the official client has for the lines of a watch."""

BOOKMARK_SECONDS: Final = 60.0
STARTS_WITHIN: Final = 40.0
"""Seconds that jobs have to run before the acts begin."""


def written(body: object) -> bytes:
    """JSON as Go writes it."""
    raw = msgspec.json.encode(body)
    for sign in b"<>&":
        raw = raw.replace(bytes([sign]), b"\\u%04x" % sign)
    return raw


@dataclass(frozen=True)
class Fault:
    """How requests are answered for some time, counted from the beginning of the acts: from -40 on, as jobs begin.

    Attributes:
        verb: of the requests; any if it is empty.
        plural: what they are about, or an API group; anything if it is empty.
        name: of the object; any if it is empty.
        status: of the answer; 0 for one that is cut, or never comes.
        retry_after: its header, if there is one.
        body: the answer.
        cut: after so many bytes of a right answer the connection ends.
        silent: no answer comes.
        date: seconds that the time in the answers is off.
        drops: a field of the status that the server does not keep.
        every: only each such request.
        breaks: at its beginning, all watches end.
    """

    begin: float
    seconds: float
    verb: str = ""
    plural: str = ""
    name: str = ""
    status: int = 0
    retry_after: str = ""
    body: str = ""
    cut: int | None = None
    silent: bool = False
    date: float = 0.0
    drops: str = ""
    every: int = 1
    breaks: bool = False

    @property
    def end(self) -> float:
        return self.begin + self.seconds

    def meets(self, verb: str, resource: Resource | None, name: str) -> bool:
        about = (resource.plural, resource.group) if resource is not None else ("apis",)
        return self.verb in ("", verb) and self.plural in ("", *about) and self.name in ("", name)


@dataclass(frozen=True)
class Load:
    """Much to do at once.

    Attributes:
        pods: workers of the job that it is done to.
        pace: calls a second that the API server serves.
        refuses: whether it answers 429 to the others; else they wait.
    """

    pods: int
    pace: float
    refuses: bool = False


class _Protocol(BaseProtocol):
    """What is on its way comes at once: there is nobody to be asked to wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.transport = asyncio.Transport()

    def pause_reading(self) -> None: ...

    def resume_reading(self, *_: object, **__: object) -> None: ...


class Reply:
    """What the client sees of an answer."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        self.status = status
        self.headers = dict(headers)
        self.content = aiohttp.StreamReader(_Protocol(loop), BUFFER, loop=loop)

    async def read(self) -> bytes:
        return await self.content.read()

    def ends(self, body: bytes) -> Reply:
        self.content.feed_data(body)
        self.content.feed_eof()
        return self


class Wire:
    """In place of the client's session."""

    def __init__(self, gateway: FakeGateway, *, faults: tuple[Fault, ...] = (), load: Load | None = None) -> None:
        self.gateway = gateway
        self.faults = faults
        self.load = load
        self._free_at = 0.0
        """When the next call is served, if only some a second are."""

        self.began_at = STARTS_WITHIN
        """When the acts begin, by the loop's clock."""

        self.calls: list[_Call] = []
        self._asked: dict[Fault, int] = {}

    def writes(self) -> Counter[str]:
        """How often each object was written to, by what was done."""
        writing = (
            call for call in self.calls if call.verb in ("create", "patch", "delete") and "dryRun" not in call.query
        )
        return Counter(f"{call.verb} {call.path}{call.about}" for call in writing)

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes | None, timeout: Any, **_: object
    ) -> AsyncIterator[Reply]:
        """As aiohttp's."""
        call = _Call(method, url, headers, data)
        self.calls.append(call)
        fault = self._fault(call)
        if fault is not None and fault.silent:
            await asyncio.sleep(timeout.total or timeout.sock_read)
            raise aiohttp.ServerTimeoutError("no answer in time")
        if fault is not None and (fault.status or fault.body):
            told = {"Date": _date(0.0), **({"Retry-After": fault.retry_after} if fault.retry_after else {})}
            yield Reply(fault.status or 200, told).ends(fault.body.encode())
            return
        if not await self._served():
            error = TooManyRequests("too many requests", status=429, reason="TooManyRequests")
            yield Reply(429, {"Date": _date(0.0), "Retry-After": "1"}).ends(written(_status(error)))
            return
        reply, pump = await self._answered(call, fault, timeout)
        try:
            yield reply
        finally:
            if pump is not None:
                pump.cancel()

    def _fault(self, call: _Call) -> Fault | None:
        since = loop_time() - self.began_at
        for fault in self.faults:
            if fault.begin <= since < fault.end and fault.meets(call.verb, call.resource, call.name):
                self._asked[fault] = self._asked.get(fault, 0) + 1
                if self._asked[fault] % fault.every == 0:
                    return fault
        return None

    async def _served(self) -> bool:
        """Wait for a call's turn; False if it is refused, as a second of calls waits before it."""
        if self.load is None:
            return True
        turn = max(self._free_at, loop_time())
        if self.load.refuses and turn > loop_time() + 1.0:
            return False
        self._free_at = turn + 1.0 / self.load.pace
        await asyncio.sleep(turn - loop_time())
        return True

    async def _answered(
        self, call: _Call, fault: Fault | None, timeout: Any
    ) -> tuple[Reply, asyncio.Task[None] | None]:
        headers = {"Date": _date(fault.date if fault is not None else 0.0)}
        try:
            if call.verb == "watch":
                return await self._watched(call, fault, headers, timeout)
            found = await self._found(call, fault)
        except ApiError as error:
            more = {} if error.retry_after is None else {"Retry-After": f"{error.retry_after:g}"}
            return Reply(error.status or 500, {**headers, **more}).ends(written(_status(error))), None
        body = written(found)
        reply = Reply(200, headers)
        if fault is not None and fault.cut is not None:
            reply.content.feed_data(body[: fault.cut])
            reply.content.set_exception(aiohttp.ClientPayloadError("the connection was cut"))
            return reply, None
        return reply.ends(body), None

    async def _found(self, call: _Call, fault: Fault | None) -> object:
        gateway, resource = self.gateway, call.resource
        if resource is None:
            return self._discovered(call.path)
        where = {"namespace": call.namespace, "name": call.name}
        match call.verb:
            case "list":
                selector = call.query.get("labelSelector", "")
                listing = await gateway.list(resource, namespace=call.namespace, selector=selector)
                items = [msgspec.Raw(item) for item in listing.items]
                return {"metadata": {"resourceVersion": listing.resource_version}, "items": items}
            case "get":
                return await gateway.get(resource, **where)  # type: ignore[arg-type]
            case "create":
                sent = msgspec.json.decode(call.data)
                dry_run = "dryRun" in call.query
                return await gateway.create(resource, namespace=call.namespace or "", body=sent, dry_run=dry_run)
            case "patch":
                sent = msgspec.json.decode(call.data)
                if fault is not None and fault.drops and isinstance(sent.get("status"), dict):
                    sent["status"].pop(fault.drops, None)
                return await gateway.patch(resource, **where, patch=sent, subresource=call.subresource)  # type: ignore[arg-type]
        sent = msgspec.json.decode(call.data)
        wanted = dig(sent, "preconditions")
        await gateway.delete(
            resource,
            **where,  # type: ignore[arg-type]
            uid=text(dig(wanted, "uid")),
            resource_version=text(dig(wanted, "resourceVersion")),
        )
        return {"kind": "Status", "status": "Success", "metadata": {}}

    def _discovered(self, path: str) -> object:
        there = self.gateway.installed
        if path == "/apis":
            versions = sorted({each.api_version for each in there})
            found = [{"groupVersion": each, "version": each.rpartition("/")[2]} for each in versions]
            return {"groups": [{"name": each["groupVersion"].partition("/")[0], "versions": [each]} for each in found]}
        return {"resources": [{"name": each.plural} for each in there if each.root == path]}

    async def _watched(
        self, call: _Call, fault: Fault | None, headers: Mapping[str, str], timeout: Any
    ) -> tuple[Reply, asyncio.Task[None]]:
        assert call.resource is not None
        events = self.gateway.watch(
            call.resource,
            namespace=call.namespace,
            selector=call.query.get("labelSelector", ""),
            resource_version=call.query.get("resourceVersion", "0"),
        )
        first: asyncio.Task[Any] = asyncio.ensure_future(anext(events))
        for _ in range(3):
            await asyncio.sleep(0)
        if first.done() and (error := first.exception()) is not None:
            raise error
        reply = Reply(200, headers)
        lasts = float(call.query["timeoutSeconds"])
        pump = asyncio.create_task(self._pump(reply.content, first, events, fault, lasts, timeout.sock_read))
        return reply, pump

    async def _pump(
        self,
        content: aiohttp.StreamReader,
        first: asyncio.Task[Any],
        events: Any,
        fault: Fault | None,
        lasts: float,
        silence: float,
    ) -> None:
        """Tell the events of a watch, and bookmarks, until the server ends it, or it breaks."""
        following, end = first, loop_time() + lasts
        try:
            while loop_time() < end:
                if fault is not None and fault.cut is not None and fault.cut % 2:
                    await asyncio.sleep(silence)
                    content.set_exception(aiohttp.SocketTimeoutError("silent"))
                    return
                done, _ = await asyncio.wait([following], timeout=BOOKMARK_SECONDS)
                if not done:
                    version = str(self.gateway._version)
                    self._tell(content, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})
                    continue
                event = following.result()
                following = asyncio.ensure_future(anext(events))
                line = b'{"type":"%s","object":%s}\n' % (event.type.encode(), written(msgspec.Raw(event.object)))
                if fault is not None and fault.cut is not None:
                    content.feed_data(line[: fault.cut])
                    content.set_exception(aiohttp.ClientPayloadError("the connection was cut"))
                    return
                for begin in range(0, len(line), 2**17):
                    content.feed_data(line[begin : begin + 2**17])
                    await asyncio.sleep(0)
            content.feed_eof()
        except ApiError as error:
            self._tell(content, {"type": "ERROR", "object": _status(error)})
            content.feed_eof()
        finally:
            following.cancel()
            following.add_done_callback(lambda done: done.cancelled() or done.exception())

    @staticmethod
    def _tell(content: aiohttp.StreamReader, line: JsonObject) -> None:
        content.feed_data(json.dumps(line).encode() + b"\n")


class _Call:
    """A request, taken apart."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> None:
        parts = urlsplit(url)
        self.path, self.headers, self.data = parts.path, headers, data or b"{}"
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        names = [unquote(each) for each in parts.path.strip("/").split("/")]
        version, rest = ("v1", names[2:]) if names[0] == "api" else ("/".join(names[1:3]), names[3:])
        self.namespace: str | None = None
        if len(rest) > 2 and rest[0] == "namespaces":
            self.namespace, rest = rest[1], rest[2:]
        plural, self.name, self.subresource = [*rest, "", "", ""][:3]
        self.resource = Resource(version, "", plural) if plural else None
        one = "get" if self.name or self.resource is None else "list"
        read = "watch" if "watch" in self.query else one
        self.about = f" {dig(msgspec.json.decode(data), 'metadata', 'name')}" if method == "POST" and data else ""
        self.verb = {"GET": read, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]


def _date(off: float) -> str:
    from datetime import datetime
    from email.utils import format_datetime

    return format_datetime(datetime.fromisoformat(at(loop_time() + off)), usegmt=True)


def _status(error: ApiError) -> JsonObject:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": error.status or 500,
        "reason": error.reason,
        "message": error.message,
    }


class MemoryGateway(KubeGateway):
    """The operator's client, on such a wire."""

    def __init__(self, wire: Wire) -> None:
        configuration = Configuration()
        configuration.host = "http://api.example"
        super().__init__(configuration, source=ConnectionSource())
        self._wire = wire

    def _session(self) -> Any:
        return self._wire
