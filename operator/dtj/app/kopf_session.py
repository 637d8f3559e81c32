"""The connection of kopf, in whose answers a job is its identity alone.

kopf decodes whole lists and lines of a watch, and jobs may be long (see :mod:`dtj.kube.job_body`). Its seam is the
session of aiohttp, whose class of responses may be replaced: ours reads each job, keeps it beside for the handler, and
tells kopf who it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cached_property, partial
from typing import Any

import aiohttp
import kopf
import msgspec

from dtj.api.json import JsonObject
from dtj.kube.config import ConnectionSource
from dtj.kube.decoding import Unreadable
from dtj.kube.errors import error_from_reply
from dtj.kube.gateway import JOBS, TFJOBS
from dtj.kube.job_body import JobObject, read_event, read_page
from dtj.kube.watch_lines import watch_lines


class JobsBeside:
    """The jobs that kopf was told of, until its handler takes them.

    Of each UID there is the newest version alone, and none of a job that was deleted: events that kopf drops leave no
    more behind than that. What cannot be read is left out, because kopf would end at it, again and again; the lists of
    the feed name it.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, JobObject] = {}

    def take(self, uid: str) -> JobObject | None:
        """The job, once; None if a newer version of it, or its end, was already taken or is about to be."""
        return self._by_uid.pop(uid, None)

    def page(self, raw: bytes) -> JsonObject:
        """A page of a list, for kopf. Raises Unreadable if it is none."""
        page = read_page(raw)
        self._by_uid |= {job.metadata.uid: job for job in page.jobs}
        return {**page.head, "items": [_identity(job) for job in page.jobs]}

    def line(self, line: bytes) -> bytes:
        """A line of a watch, for kopf; empty if it is not for kopf."""
        try:
            event = read_event(line)
        except Unreadable:
            return b""
        if event is None:
            return line
        job = event.object
        if event.type == "DELETED":
            self._by_uid.pop(job.metadata.uid, None)
        else:
            self._by_uid[job.metadata.uid] = job
        return msgspec.json.encode({"type": event.type, "object": _identity(job)})


def _identity(job: JobObject) -> JsonObject:
    metadata: JsonObject = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
        "resourceVersion": job.metadata.resource_version,
    }
    return {"apiVersion": job.api_version, "kind": job.kind, "metadata": metadata}


class KopfSession(kopf.AiohttpSession):
    """Credentials for kopf whose session makes responses of ours. Equal where what it was made of is equal: by that
    kopf knows credentials that were refused before."""

    _info: kopf.ConnectionInfo
    _jobs: JobsBeside

    def __init__(self, info: kopf.ConnectionInfo, jobs: JobsBeside) -> None:
        object.__setattr__(self, "_info", info)
        object.__setattr__(self, "_jobs", jobs)
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
            response_class=partial(_Response, self._jobs),  # type: ignore[arg-type]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KopfSession) and bool(self._info == other._info)

    def __hash__(self) -> int:
        return hash(self.server)


class _Response(aiohttp.ClientResponse):
    """Reads lists and watches of jobs before kopf does; other answers are left as they are."""

    def __init__(self, jobs: JobsBeside, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._jobs = jobs

    @property
    def headers(self) -> Any:
        """With the time to come back that :class:`~dtj.kube.errors.ApiError` has: kopf waits for any."""
        found = super().headers
        if (given := found.get("Retry-After")) is None:
            return found
        seconds = error_from_reply(self.status, b"", headers={"Retry-After": given}).retry_after
        bounded = found.copy()
        del bounded["Retry-After"]
        if seconds is not None:
            bounded["Retry-After"] = f"{seconds:g}"
        return bounded

    @property
    def _has_jobs(self) -> bool:
        return self.url.path.rpartition("/")[2] in (JOBS.plural, TFJOBS.plural) and self.status == 200

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        if self._has_jobs and self.url.query.get("watch") == "true":
            self.content = _Lines(self.content, self._jobs)  # type: ignore[assignment]
        return self

    async def json(self, **arguments: Any) -> Any:
        if not self._has_jobs:
            return await super().json(**arguments)
        page = self._jobs.page(await self.read())
        self._body = b""  # kopf keeps the response until the next one is there
        return page


class _Lines:
    """The stream of a watch as kopf reads it; else as aiohttp's own."""

    def __init__(self, content: aiohttp.StreamReader, jobs: JobsBeside) -> None:
        self._content = content
        self._jobs = jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Whole lines, whatever ``size``."""
        async for line in watch_lines(self._content):
            if told := self._jobs.line(line):
                yield told + b"\n"


async def connection_info(source: ConnectionSource) -> kopf.ConnectionInfo:
    """The connection of our own gateway, in kopf's terms. kopf asks again when the API server answers 401."""
    configuration = await source.load()
    header = await configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = header.rpartition(" ")
    extra = getattr(configuration, "client_session_kwargs", None) or {}
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
        trust_env=extra.get("trust_env", True),
    )
