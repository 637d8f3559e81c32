"""What a server does not list while it starts is not known, rather than missing."""

from __future__ import annotations

import pytest
from aiohttp import web

from dtj.kube.errors import Unavailable
from dtj.kube.gateway import JOBS, TFJOBS, Discovery
from support.web_server import gateway_at, served

ASKED = (JOBS, TFJOBS)


async def discovered(*, ready: int, listed: bool) -> Discovery:
    """What is found on a server with this status of ``/readyz``, which has both resources, or only the first."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/readyz":
            return web.Response(status=ready, text="[-]poststarthook/start-apiextensions-controllers failed")
        there = ASKED if listed else ASKED[:1]
        if request.path == "/apis":
            return web.json_response(
                {"groups": [{"name": each.group, "versions": [{"groupVersion": each.api_version}]} for each in ASKED]}
            )
        found = [each for each in there if request.path == each.root]
        status = 200 if found else 404
        return web.json_response({"resources": [{"name": each.plural} for each in found]}, status=status)

    async with served(answer) as url, gateway_at(url) as gateway:
        return await gateway.discover(ASKED)


@pytest.mark.parametrize(
    ("ready", "listed"),
    [(200, True), (200, False), (403, False), (404, False), (500, True)],
)
async def test_a_server_that_is_ready_or_has_all_is_believed(ready: int, listed: bool) -> None:
    found = await discovered(ready=ready, listed=listed)
    assert found.served == (ASKED if listed else ASKED[:1])


async def test_a_server_that_is_not_ready_is_not_believed_that_something_is_missing() -> None:
    with pytest.raises(Unavailable, match="not ready"):
        await discovered(ready=500, listed=False)
