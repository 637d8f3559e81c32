"""The Gateway to a real API server, over the official client's transport.

JSON goes in and comes out as it is: the client's models cost 195 µs and 69 KiB a pod, so none of them is used
here. A call that is refused with 401 is made once more, with a fresh token. Nothing else is retried: whoever calls
knows what a second attempt would mean.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient, Configuration

from dtj import __version__
from dtj.api import names
from dtj.api.json import JsonObject, dig, text
from dtj.kube.clock import ServerClock
from dtj.kube.config import ConfigError, ConnectionSource
from dtj.kube.decoding import Unreadable, decode_object, reader
from dtj.kube.discovery import discover
from dtj.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    Invalid,
    Unavailable,
    error_from_reply,
    error_from_status,
    error_of_redirect,
    transport_words,
)
from dtj.kube.gateway import PODS, Discovery, Listing, Resource, WatchEvent
from dtj.kube.job_body import JobObject, read_job
from dtj.kube.paging import PAGE_SIZE, PageTooLong, read_page
from dtj.kube.pod_logs import LogQuery, split_lines
from dtj.kube.throttle import PacedSlots
from dtj.kube.waiting import loop_time
from dtj.kube.watch_lines import WATCH_SILENCE_SECONDS, watch_lines

USER_AGENT: Final = f"dtj-operator/{__version__}"

REQUESTS_IN_FLIGHT: Final = 50
"""Calls about one namespace at the same time, watches aside. More gain nothing: 50 connections keep an API server busy.
There are as many again for all others: see :mod:`dtj.kube.fairness`."""

WATCH_SECONDS: Final = 300
"""How long one watch lasts, before jitter: as in client-go, so that load balancers get to even out."""

LOG_SILENCE_SECONDS: Final = 300.0
"""How long a log that is followed may be silent before it is requested again: a dead connection sends nothing."""

Observe: TypeAlias = Callable[[str, Resource, int, float], None]
"""Gets (verb, resource, HTTP status or 0, seconds) of each call."""

T = TypeVar("T")

_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SILENCE_SECONDS)
_LOG_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_FOLLOW_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=LOG_SILENCE_SECONDS)
_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError)
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
"""Asks for an object's metadata alone: a pod of a large job holds the addresses of all its peers."""

PORT_FORWARD_PROTOCOL: Final = "v4.channel.k8s.io"
"""What a kubelet has always spoken over websockets."""

_MERGE_PATCH = "application/merge-patch+json"


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _WatchLine(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_decode_page = reader(_Page)


def _decode_list(raw: bytes) -> _Page:
    """A page of a list. What has no version is none, but perhaps a proxy's: taken for an empty list, it would say that
    all objects are gone. Raises Unreadable."""
    page = _decode_page(raw)
    if not page.metadata.resource_version:
        raise Unreadable("a list without a resourceVersion")
    return page


_decode_line = reader(_WatchLine)
_encode = msgspec.json.Encoder().encode


def _unobserved(verb: str, resource: Resource, status: int, seconds: float) -> None:
    """For callers that count nothing."""


class KubeGateway:
    """:class:`dtj.kube.gateway.Gateway` for a real API server. Make one with :meth:`connect`; close it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        source: ConnectionSource,
        observe: Observe = _unobserved,
        user_agent: str = USER_AGENT,
        manager: str = names.MANAGER,
    ) -> None:
        # Watches stay open, one a resource and namespace: they alone could use up a bounded pool,
        # so that it is the calls that are bounded.
        configuration.connection_pool_maxsize = 0
        self.clock = ServerClock()
        """What time it is, as the server's answers tell."""

        self._client = ApiClient(configuration)
        self._source = source
        self._observe = observe
        self._user_agent = user_agent
        self._manager = manager
        self._in_flight = PacedSlots(2 * REQUESTS_IN_FLIGHT)
        self.throttle = self._in_flight.throttle

    @classmethod
    async def connect(
        cls,
        source: ConnectionSource,
        *,
        observe: Observe = _unobserved,
        user_agent: str = USER_AGENT,
        manager: str = names.MANAGER,
    ) -> KubeGateway:
        """Read the configuration; no call is made yet. ``manager`` owns the fields that are written.

        Raises ConfigError.
        """
        return cls(await source.load(), source=source, observe=observe, user_agent=user_agent, manager=manager)

    @property
    def server(self) -> str:
        """Address of the API server, for messages."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        """Close all connections; open watches end."""
        await self._client.close()

    async def list(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> Listing:
        listing = self.pages(resource, namespace=namespace, selector=selector, field_selector=field_selector)
        pages = [page async for page in listing]
        items = tuple(item for page in pages for item in page.items)
        return Listing(items=items, resource_version=pages[-1].resource_version)

    async def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Listing, None]:
        selected = _selected(selector, field_selector)
        limit, next_page, path = PAGE_SIZE, "", resource.path(namespace)
        while True:
            query = {"limit": str(limit), **selected, **({"continue": next_page} if next_page else {})}
            read = read_page if limit > 1 else None
            try:
                page = await self._call(
                    "list", resource, path=path, namespace=namespace, query=query, decode=_decode_list, read=read
                )
            except PageTooLong:
                limit = max(1, limit // 8)
                continue
            limit, next_page = min(2 * limit, PAGE_SIZE), page.metadata.next_page
            listing = Listing(tuple(map(bytes, page.items or ())), page.metadata.resource_version)
            del page  # before the next one is read
            yield listing
            if not next_page:
                return
            del listing

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        selector: str = "",
        field_selector: str = "",
        resource_version: str,
    ) -> AsyncGenerator[WatchEvent, None]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(WATCH_SECONDS * random.uniform(0.8, 1.2))),
            **_selected(selector, field_selector),
        }
        path = resource.path(namespace)
        async with self._stream("watch", resource, path=path, query=query, timeout=_WATCH_TIMEOUT) as reply:
            async for line in watch_lines(reply.content):
                try:
                    event = _decode_line(line)
                except Unreadable as error:
                    raise Gone(f"a line of the watch cannot be read: {error}: list again") from error
                if event.type == "ERROR":
                    raise error_from_status(bytes(event.object))
                yield WatchEvent(type=event.type, object=bytes(event.object))

    async def log(self, query: LogQuery, *, namespace: str, pod: str) -> AsyncGenerator[bytes, None]:
        """Lines of a container's log, each with its timestamp before it.

        Raises Invalid if the container has not started or does not exist, NotFound if the pod is gone, and
        Unavailable if the connection breaks or is silent for too long.
        """
        path = PODS.object_path(namespace, pod, "log")
        timeout = _FOLLOW_TIMEOUT if query.follow else _LOG_TIMEOUT
        async with self._stream("get", PODS, path=path, query=query.parameters(), timeout=timeout) as reply:
            async for line in split_lines(reply.content.iter_any()):
                yield line

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        path = resource.object_path(namespace, name)
        return await self._call("get", resource, path=path, namespace=namespace, decode=decode_object)

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False, strict: bool = False
    ) -> JsonObject:
        """As the protocol says; ``strict`` makes unknown fields errors, and gives the object back whole, as a dry run
        does."""
        query = {"fieldManager": self._manager}
        query |= {"fieldValidation": "Strict"} if strict or dry_run else {}
        query |= {"dryRun": "All"} if dry_run else {}
        accept = _JSON if strict or dry_run else _METADATA
        return await self._call(
            "create",
            resource,
            path=resource.path(namespace),
            namespace=namespace,
            query=query,
            body=body,
            decode=decode_object,
            accept=accept,
        )

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        path = resource.object_path(namespace, name, subresource)
        return await self._patch(resource, path=path, namespace=namespace, patch=patch, decode=decode_object)

    async def patch_job_status(self, resource: Resource, *, namespace: str, name: str, patch: JsonObject) -> JobObject:
        path = resource.object_path(namespace, name, "status")
        return await self._patch(resource, path=path, namespace=namespace, patch=patch, decode=read_job)

    async def _patch(
        self, resource: Resource, *, path: str, namespace: str, patch: JsonObject, decode: Callable[[bytes], T]
    ) -> T:
        query = {"fieldManager": self._manager}
        try:
            return await self._call(
                "patch", resource, path=path, namespace=namespace, query=query, body=patch, decode=decode
            )
        except Invalid as error:
            if any(cause.startswith("metadata.uid:") for cause in error.causes):
                # What the API server says where the UID is another object's by now: "field is immutable".
                raise Conflict(error.message, status=error.status, reason=error.reason) from error
            raise

    async def delete(
        self,
        resource: Resource,
        *,
        namespace: str,
        name: str,
        uid: str = "",
        resource_version: str = "",
        foreground: bool = False,
    ) -> None:
        """As the protocol says; ``foreground`` keeps the object until all that it owns is gone."""
        propagation = "Foreground" if foreground else "Background"
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions: JsonObject = {name: value for name, value in given.items() if value}
        options: JsonObject = {"preconditions": preconditions, "propagationPolicy": propagation}
        path = resource.object_path(namespace, name)
        await self._call(
            "delete",
            resource,
            path=path,
            namespace=namespace,
            body=options,
            decode=decode_object,
            accept=_METADATA,
        )

    @asynccontextmanager
    async def dial(self, *, namespace: str, pod: str, port: int) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A websocket to a port of a pod, in the protocol that :mod:`dtj.kube.port_forward` speaks. Raises ApiError."""
        path = f"{PODS.object_path(namespace, pod, 'portforward')}?{urlencode({'ports': port})}"
        headers = {"User-Agent": self._user_agent}
        configuration = self._client.configuration
        try:
            await self._client.update_params_for_auth(headers, None, ["BearerToken"], path, "GET", None)
            async with self._session().ws_connect(
                f"{self.server}{path}",
                protocols=(PORT_FORWARD_PROTOCOL,),
                headers=headers,
                proxy=configuration.proxy,
                proxy_headers=configuration.proxy_headers,
                server_hostname=configuration.tls_server_name,
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            words = f"port {port} of pod {pod} cannot be forwarded: HTTP status {error.status}".encode()
            raise error_from_reply(error.status, words, headers={}) from error
        except _TRANSPORT_ERRORS as error:
            raise Unavailable(f"{self.server}: {transport_words(error)}") from error

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        """As :func:`dtj.kube.discovery.discover` says."""

        async def read(resource: Resource, path: str, decode: Callable[[bytes], T]) -> T:
            return await self._call("get", resource, path=path, decode=decode)

        return await discover(resources, read)

    async def openapi(self, resource: Resource, decode: Callable[[bytes], T]) -> T:
        """The schema of a resource's group and version, which every account may read."""
        return await self._call("get", resource, path=f"/openapi/v3{resource.root}", decode=decode)

    async def version(self) -> str:
        """The server's version, such as ``v1.33.1``. Everybody may ask."""
        reply = await self._call("get", _VERSION, path="/version", decode=decode_object)
        return text(reply.get("gitVersion"))

    async def review(self, attributes: JsonObject, *, user: str = "", groups: Sequence[str] = ()) -> bool:
        """Whether we, or another user, may do something: ``resourceAttributes`` of an access review.

        Everybody may ask about themselves; asking about others takes a right of its own.
        """
        kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
        resource = Resource("authorization.k8s.io/v1", kind, f"{kind.lower()}s")
        spec: JsonObject = {"resourceAttributes": attributes}
        if user:
            spec |= {"user": user, "groups": [*groups]}
        body: JsonObject = {"apiVersion": resource.api_version, "kind": kind, "spec": spec}
        reply = await self._call(
            "create", resource, path=resource.path(None), body=body, decode=decode_object, accept=_JSON
        )
        return dig(reply, "status", "allowed") is True

    async def _call(
        self,
        verb: str,
        resource: Resource,
        *,
        path: str,
        decode: Callable[[bytes], T],
        namespace: str | None = None,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        accept: str = _JSON,
        read: Callable[[aiohttp.ClientResponse], Awaitable[bytes]] | None = None,
    ) -> T:
        async def once() -> T:
            async with self._request(verb, resource, path=path, query=query, body=body, accept=accept) as reply:
                return decode(await (reply.read() if read is None else read(reply)))

        async with self._in_flight.of(namespace or ""):
            try:
                return await once()
            except ApiError as error:
                if error.status != HTTPStatus.UNAUTHORIZED or not await self._refresh_credentials():
                    raise
                return await once()

    @asynccontextmanager
    async def _stream(
        self, verb: str, resource: Resource, *, path: str, query: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A call whose answer is read bit by bit. It is not made again, but credentials are fresh for the next one:
        an idle operator makes no other call."""
        try:
            async with self._request(verb, resource, path=path, query=query, timeout=timeout) as reply:
                yield reply
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                await self._refresh_credentials()
            raise

    @asynccontextmanager
    async def _request(
        self,
        verb: str,
        resource: Resource,
        *,
        path: str,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        accept: str = _JSON,
        timeout: aiohttp.ClientTimeout = _REQUEST_TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call, from connection to last byte; whatever goes wrong on the way is an ApiError."""
        method = _METHODS[verb]
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        headers["Content-Type"] = _MERGE_PATCH if method == "PATCH" else _JSON
        configuration = self._client.configuration
        started = loop_time()
        status = 0
        try:
            await self._client.update_params_for_auth(headers, None, ["BearerToken"], path, method, body)
            async with self._session().request(
                method,
                url,
                headers=headers,
                data=_encode(body) if body is not None else None,
                timeout=timeout,
                proxy=configuration.proxy,
                proxy_headers=configuration.proxy_headers,
                server_hostname=configuration.tls_server_name,
                allow_redirects=False,  # a POST would arrive as a GET, and credentials at another server
            ) as reply:
                status = reply.status
                self.clock.observe(reply.headers.get("Date"))
                if 300 <= status < HTTPStatus.BAD_REQUEST and "Location" in reply.headers:
                    raise error_of_redirect(status, str(reply.url), reply.headers["Location"])
                if status >= HTTPStatus.BAD_REQUEST:
                    raise error_from_reply(status, await reply.read(), headers=reply.headers)
                yield reply
        except _TRANSPORT_ERRORS as error:
            raise Unavailable(f"{self.server}: {transport_words(error)}") from error
        except Unreadable as error:
            raise Unavailable(f"{self.server}{path}: not the answer of an API server: {error}") from error
        finally:
            self._observe(verb, resource, status, loop_time() - started)

    def _session(self) -> aiohttp.ClientSession:
        """The official client's session, used directly: bodies are encoded by msgspec, in a third of the time."""
        transport = self._client.rest_client
        if transport.pool_manager is None:
            transport.pool_manager = transport._create_pool_manager()
        session: aiohttp.ClientSession = transport.pool_manager
        return session

    async def _refresh_credentials(self) -> bool:
        """Take a fresh token from the source; False if it has no other."""
        configuration = self._client.configuration
        before = dict(configuration.api_key)
        try:
            fresh = await self._source.load()
        except ConfigError as error:
            raise Unavailable(str(error)) from error
        configuration.api_key = fresh.api_key
        return bool(fresh.api_key) and fresh.api_key != before


_VERSION: Final = Resource("v1", "Version", "version")
"""A name for functions that count calls."""

_METHODS: Final = {"list": "GET", "watch": "GET", "get": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


def _selected(selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": selector, "fieldSelector": field_selector}
    return {name: value for name, value in given.items() if value}
