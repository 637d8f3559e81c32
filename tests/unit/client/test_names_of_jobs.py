"""A call about one job never becomes one about all jobs of the namespace, whatever the name is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from dtj.client import AsyncClient, InvalidRequest, Unavailable
from support.kubeconfigs import kubeconfig
from support.web_server import served

NOT_NAMES = ["", ".", "..", "a/b", "tfjob/", "tfjob/.", "%2e"]


async def _read(client: AsyncClient, name: str) -> None:
    async for _ in client.logs(name):
        pass


async def _follow(client: AsyncClient, name: str) -> None:
    async for _ in client.follow(name):
        pass


CALLS: Mapping[str, Callable[[AsyncClient, str], Awaitable[object]]] = {
    "get": lambda client, name: client.get(name),
    "delete": lambda client, name: client.delete(name),
    "suspend": lambda client, name: client.suspend(name),
    "resume": lambda client, name: client.resume(name),
    "stop": lambda client, name: client.stop(name),
    "scale": lambda client, name: client.scale(name, 2),
    "wait": lambda client, name: client.wait(name),
    "logs": _read,
    "follow": _follow,
}


class Server:
    """An API server that answers a request for a collection, and counts what was asked of it."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.asked: list[str] = []
        self._metadata = metadata

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.method)
        return web.json_response({"metadata": {"resourceVersion": "1", **self._metadata}, "items": []})


@asynccontextmanager
async def client_of(server: Server, folder: Path) -> AsyncIterator[AsyncClient]:
    async with (
        served(server.answer) as url,
        await AsyncClient.connect(kubeconfig=str(kubeconfig(folder, url))) as client,
    ):
        yield client


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", NOT_NAMES)
async def test_what_cannot_be_the_name_of_a_job_is_refused_without_a_call(
    tmp_path: Path, call: Callable[[AsyncClient, str], Awaitable[object]], name: str
) -> None:
    server = Server({})
    async with client_of(server, tmp_path) as client:
        with pytest.raises(InvalidRequest, match="name") as raised:
            await call(client, name)
    assert "\n" not in str(raised.value)
    assert server.asked == []


@pytest.mark.parametrize("namespace", [".", "..", "a/b", "../.."])
async def test_what_cannot_be_a_namespace_is_refused_without_a_call(tmp_path: Path, namespace: str) -> None:
    server = Server({})
    async with client_of(server, tmp_path) as client:
        with pytest.raises(InvalidRequest, match="is not the name of a namespace"):
            await client.delete("digits", namespace=namespace)
        with pytest.raises(InvalidRequest, match="is not the name of a namespace"):
            await client.list(namespace=namespace)
    assert server.asked == []


@pytest.mark.parametrize("metadata", [{}, {"name": "digits"}, {"name": "iris", "uid": "u1"}, {"uid": "u1"}])
async def test_nothing_is_deleted_after_an_answer_that_is_not_the_job(
    tmp_path: Path, metadata: Mapping[str, str]
) -> None:
    server = Server(metadata)
    async with client_of(server, tmp_path) as client:
        with pytest.raises(Unavailable, match=r"^asked for digits, the answer is another object or none"):
            await client.delete("digits")
    assert server.asked == ["GET"]
