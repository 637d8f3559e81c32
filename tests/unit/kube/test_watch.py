"""The gateway over HTTP: watches that lose their place or their connection, the UID of a patch, lists in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from dtj.kube import client, paging
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Conflict, Gone, Invalid, Unavailable
from dtj.kube.gateway import PODS, SERVICES
from support.fake_gateway import FakeGateway
from support.http_api import HttpApi
from support.web_server import gateway_at, served


@asynccontextmanager
async def connected(server: FakeGateway) -> AsyncIterator[KubeGateway]:
    async with HttpApi(server) as api, gateway_at(api.url) as gateway:
        yield gateway


async def end_of_watch(gateway: KubeGateway, *, version: str = "0") -> ApiError:
    """Watch pods until that ends in an error."""
    with pytest.raises(ApiError) as caught:
        async for _ in gateway.watch(PODS, namespace=None, resource_version=version):
            pass
    return caught.value


async def test_a_watch_that_stays_silent_has_lost_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restore of etcd: the server waits for a version that it does not have yet."""
    monkeypatch.setattr(client, "_WATCH_TIMEOUT", aiohttp.ClientTimeout(total=None, sock_read=0.3))
    async with connected(FakeGateway()) as gateway:
        assert isinstance(await end_of_watch(gateway, version="900000"), Gone)


@pytest.mark.parametrize("status", [429, 500, 504])
async def test_an_error_line_is_an_answer_of_the_server_with_its_status(server: FakeGateway, status: int) -> None:
    server.put(PODS, {"metadata": {"name": "a"}})
    async with connected(server) as gateway:
        watch = gateway.watch(PODS, namespace=None, resource_version="0")
        assert (await anext(watch)).type == "ADDED"
        server.break_watches(Unavailable("Too large resource version", status=status, reason="Timeout"))
        with pytest.raises(ApiError) as caught:
            await anext(watch)
        assert caught.value.status == status


async def test_a_refused_watch_is_an_answer_of_the_server_with_its_status(server: FakeGateway) -> None:
    server.fail("watch", PODS, Unavailable("Too large resource version", status=504, reason="Timeout"))
    async with connected(server) as gateway:
        assert (await end_of_watch(gateway)).status == 504


async def test_a_connection_that_cannot_be_made_is_no_answer() -> None:
    async with connected(FakeGateway()) as gateway:
        gateway._client.configuration.host = "http://127.0.0.1:9"
        assert (await end_of_watch(gateway)).status == 0


async def test_a_patch_that_names_the_uid_of_another_object_is_a_conflict(server: FakeGateway) -> None:
    """A real API server says that the field is immutable."""
    message = 'Service "digits" is invalid: metadata.uid: Invalid value: "theirs": field is immutable'
    causes = ('metadata.uid: Invalid value: "theirs": field is immutable',)
    server.fail("patch", SERVICES, Invalid(message, status=422, reason="Invalid", causes=causes))
    async with connected(server) as gateway:
        with pytest.raises(Conflict):
            await gateway.patch(SERVICES, namespace="default", name="digits", patch={"metadata": {"uid": "ours"}})


async def test_a_page_of_long_objects_after_many_short_ones_is_asked_for_again_with_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paging, "MAX_PAGE_BYTES", 400_000)
    lengths = [10] * 620 + [100_000] * 20 + [500_000]
    limits: list[int] = []

    async def services(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/services"
        first, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        limits.append(limit)
        items = [{"metadata": {"name": str(n)}, "x": "x" * lengths[n]} for n in range(first, len(lengths))[:limit]]
        following = str(first + limit) if first + limit < len(lengths) else ""
        return web.json_response({"metadata": {"resourceVersion": "1", "continue": following}, "items": items})

    async with served(services) as url, gateway_at(url) as gateway:
        listing = await gateway.list(SERVICES, namespace=None)
    assert [f'"name": "{n}"' in item.decode() for n, item in enumerate(listing.items)] == [True] * len(lengths)
    assert max(limits) == paging.PAGE_SIZE
    assert limits[-1] == 1, "one object is read, however long"


def pod_of(length: int, version: int) -> bytes:
    """A line of a watch with a pod that has so many of the sign that JSON writes in six bytes."""
    head = f'{{"type":"MODIFIED","object":{{"metadata":{{"name":"a","namespace":"d","resourceVersion":"{version}"}},'
    return head.encode() + b'"spec":{"containers":[{"name":"c","args":["' + b"\\u003c" * length + b'"]}]}}}\n'


async def test_the_longest_object_that_can_be_stored_is_a_line_like_others() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"".join((pod_of(1, 1), pod_of(1_400_000, 2), pod_of(1, 3))))

    async with served(answer) as url, gateway_at(url) as gateway:
        events = [event async for event in gateway.watch(PODS, namespace=None, resource_version="0")]
    assert [len(event.object) > 8_000_000 for event in events] == [False, True, False]


async def test_a_line_that_is_longer_than_any_object_has_all_objects_listed() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=pod_of(1, 1) + pod_of(3_000_000, 2))

    async with served(answer) as url, gateway_at(url) as gateway:
        assert "longer than 16,777,216 bytes" in (error := await end_of_watch(gateway)).message
    assert isinstance(error, Gone)


@pytest.mark.parametrize(
    "line", [b"no JSON\n", b'{"type":"NEW","object":{}}\n', b'{"type":"ADDED"}\n', b"\xff\n", b"[\n"]
)
async def test_a_line_that_is_none_of_a_watch_has_all_objects_listed(line: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=pod_of(1, 1) + line)

    async with served(answer) as url, gateway_at(url) as gateway:
        assert isinstance(await end_of_watch(gateway), Gone)


async def test_a_line_that_is_cut_is_none_and_the_next_watch_goes_on_from_its_place() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=pod_of(1, 1) + pod_of(1, 2)[:60])

    async with served(answer) as url, gateway_at(url) as gateway:
        events = [event async for event in gateway.watch(PODS, namespace=None, resource_version="0")]
    assert len(events) == 1
