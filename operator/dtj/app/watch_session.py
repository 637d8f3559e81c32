"""The connection over which kopf lists and watches jobs: it gives kopf each job in the form in which we keep it.

kopf decodes whole lists and lines by itself. Its seam is the session of aiohttp, whose responses are made of a class
that may be replaced: this one reads a job before kopf does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, ClassVar

import aiohttp
import kopf

from dtj.api import names
from dtj.kube.gateway import Keep, everywhere
from dtj.kube.job_body import decode_jobs, shortened


class _Lines:
    """The stream of a watch, line by line, each shortened; else as aiohttp's own."""

    def __init__(self, content: aiohttp.StreamReader, keep: Keep) -> None:
        self._content = content
        self._keep = keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """What kopf reads, at line breaks: no chunk is longer than a line was."""
        begun: list[bytes] = []
        async for chunk in self._content.iter_chunked(size):
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                whole = b"".join((*begun, line))
                begun.clear()
                if whole and (short := shortened(whole, self._keep)):
                    yield short + b"\n"
            begun.append(rest)
        if (last := b"".join(begun)) and (short := shortened(last, self._keep)):
            yield short + b"\n"


class JobsResponse(aiohttp.ClientResponse):
    """A response that reads jobs before kopf does; other answers are left as they are."""

    keep: ClassVar[Keep] = staticmethod(everywhere)
    """Says of a namespace whether kopf sees its jobs."""

    @property
    def _has_jobs(self) -> bool:
        return self.url.path.endswith(f"/{names.PLURAL}") and self.status == 200

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self._has_jobs and self.url.query.get("watch") == "true":
            self.content = _Lines(self.content, type(self).keep)  # type: ignore[assignment]
        return self

    async def json(self, **arguments: Any) -> Any:
        if not self._has_jobs:
            return await super().json(**arguments)
        page = decode_jobs(await self.read(), type(self).keep)
        self._body = b""  # kopf keeps the response until the next one is there
        return page


class WatchSession(kopf.AiohttpSession):
    """Credentials for kopf whose session makes such responses. Equal where what it was made of is equal: by that kopf
    knows credentials that were refused before."""

    _info: kopf.ConnectionInfo

    _keep: Keep

    def __init__(self, info: kopf.ConnectionInfo, keep: Keep = everywhere) -> None:
        object.__setattr__(self, "_info", info)
        object.__setattr__(self, "_keep", keep)
        object.__setattr__(self, "server", info.server)

    @cached_property
    def aiohttp_session(self) -> aiohttp.ClientSession:
        """Made when kopf asks for it, in kopf's event loop."""
        info: kopf.ConnectionInfo = self._info
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            response_class=type("JobsResponse", (JobsResponse,), {"keep": staticmethod(self._keep)}),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchSession) and bool(self._info == other._info)

    def __hash__(self) -> int:
        return hash(self.server)
