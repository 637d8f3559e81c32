"""The path of one object is never that of a collection, and no name leads out of its namespace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from dtj.kube.client import KubeGateway
from dtj.kube.errors import Invalid
from dtj.kube.gateway import JOBS, PODS
from dtj.kube.pod_logs import LogQuery
from support.web_server import gateway_at, served

NOT_NAMES = ["", ".", "..", "a/b", "../pods", "%2e", "a%2Fb"]


async def _read_log(gateway: KubeGateway, namespace: str, pod: str) -> None:
    async for _ in gateway.log(LogQuery(container="trainer"), namespace=namespace, pod=pod):
        pass


async def _dial(gateway: KubeGateway, namespace: str, pod: str) -> None:
    async with gateway.dial(namespace=namespace, pod=pod, port=6006):
        pass


CALLS: dict[str, Callable[[KubeGateway, str, str], Awaitable[object]]] = {
    "get": lambda gateway, where, name: gateway.get(JOBS, namespace=where, name=name),
    "patch": lambda gateway, where, name: gateway.patch(JOBS, namespace=where, name=name, patch={}),
    "patch a part": lambda gateway, where, name: gateway.patch(
        JOBS, namespace=where, name=name, patch={}, subresource="scale"
    ),
    "patch the status": lambda gateway, where, name: gateway.patch_job_status(
        JOBS, namespace=where, name=name, patch={}
    ),
    "delete": lambda gateway, where, name: gateway.delete(JOBS, namespace=where, name=name),
    "log": _read_log,
    "dial": _dial,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", NOT_NAMES)
async def test_a_call_about_one_object_is_not_made_with_what_cannot_be_its_name(
    call: Callable[[KubeGateway, str, str], Awaitable[object]], name: str
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.raw_path}")
        return web.json_response({"metadata": {"name": name}})

    async with served(answer) as url, gateway_at(url) as gateway:
        with pytest.raises(Invalid, match="name"):
            await call(gateway, "default", name)
        with pytest.raises(Invalid, match=r"^namespace: .*name"):
            await call(gateway, name, "digits")
    assert asked == []


def test_a_namespace_that_is_no_part_of_a_path_is_refused_for_collections_too() -> None:
    for name in NOT_NAMES:
        with pytest.raises(Invalid):
            PODS.path(name)


def test_paths_are_those_of_kubernetes() -> None:
    assert PODS.path(None) == "/api/v1/pods"
    assert (
        PODS.object_path("default", "digits-worker-0", "log") == "/api/v1/namespaces/default/pods/digits-worker-0/log"
    )
    assert JOBS.object_path(None, "a?b#c") == f"/apis/{JOBS.api_version}/{JOBS.plural}/a%3Fb%23c"
