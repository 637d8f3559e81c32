"""Lists in pages: none is longer in memory than a bound, however the objects are arranged."""

from __future__ import annotations

import pytest
from aiohttp import web

from dtj.kube import paging
from dtj.kube.gateway import SERVICES
from support.web_server import gateway_at, served


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
