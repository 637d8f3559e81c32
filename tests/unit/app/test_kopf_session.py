"""What kopf gets of jobs, and what waits beside it: the real session of kopf, and an API server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import kopf
import msgspec
import pytest
from aiohttp import web

from builders import manifest, stored
from dtj.api import names
from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.app.kopf_session import JobsBeside, KopfSession
from support.web_server import served

T = TypeVar("T")

IDENTITY = ["name", "namespace", "resourceVersion", "uid"]


def raw(body: JsonObject) -> bytes:
    return msgspec.json.encode(body)


def job(name: str = "digits", *, uid: str = "u", version: str = "1") -> JsonObject:
    body = stored(manifest(name), uid=uid)
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}  # type: ignore[dict-item]


def event(kind: str, body: JsonObject) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw(body))


def versions_of(jobs: JobsBeside, *uids: str) -> list[str | None]:
    taken = map(jobs.take, uids)
    return [found.metadata.resource_version if found is not None else None for found in taken]


# -- jobs beside ------------------------------------------------------------------------------------------------


def test_kopf_gets_the_identity_of_a_job_and_the_job_waits_for_the_handler() -> None:
    jobs = JobsBeside()
    told = json.loads(jobs.line(event("ADDED", job(version="7"))))
    assert (told["type"], sorted(told["object"]["metadata"])) == ("ADDED", IDENTITY)
    assert told["object"]["kind"] == names.KIND
    assert versions_of(jobs, "u", "u") == ["7", None]


def test_of_events_in_a_row_the_newest_version_alone_is_kept() -> None:
    jobs = JobsBeside()
    for version in range(1, 50):
        jobs.line(event("MODIFIED", job(version=str(version))))
    assert versions_of(jobs, "u", "u") == ["49", None]


def test_a_job_that_is_deleted_leaves_nothing_behind_where_kopf_drops_its_events() -> None:
    jobs = JobsBeside()
    jobs.line(event("ADDED", job(uid="u")))
    jobs.line(event("ADDED", job("other", uid="v")))
    assert b"DELETED" in jobs.line(event("DELETED", job(uid="u", version="2")))
    assert versions_of(jobs, "u", "v") == [None, "1"]


def test_a_line_that_is_about_no_job_stays_as_it_is() -> None:
    for line in (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410}}',
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}',
        b"no JSON",
    ):
        assert JobsBeside().line(line) == line


def test_what_cannot_be_read_is_left_out_of_lists_and_watches_and_the_others_stay() -> None:
    jobs = JobsBeside()
    page = jobs.page(b'{"metadata":{},"items":[7,{"metadata":{"name":8}},' + raw(job("other")) + b"]}")
    assert [dig(item, "metadata", "name") for item in objects(page["items"])] == ["other"]
    assert jobs.line(b'{"type":"ADDED","object":7}') == b""
    assert versions_of(jobs, text(dig(page, "items", 0, "metadata", "uid"))) == ["1"]


def test_a_page_keeps_its_place_in_the_list() -> None:
    head: JsonObject = {"kind": "DistributedTrainingJobList", "metadata": {"continue": "next", "resourceVersion": "9"}}
    page = JobsBeside().page(raw({**head, "items": [job()]}))
    assert page["metadata"] == head["metadata"]
    assert dig(page, "items", 0, "metadata", "name") == "digits"


# -- the session ------------------------------------------------------------------------------------------------


def asked(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ask: Callable[[aiohttp.ClientSession, str], Awaitable[T]],
    jobs: JobsBeside | None = None,
) -> T:
    """What ``ask`` finds out by a session for kopf, from a server that gives these answers."""

    async def story() -> T:
        async with served(answer) as url:
            connection = KopfSession(kopf.ConnectionInfo(server=url), jobs or JobsBeside())
            async with connection.aiohttp_session as session:
                return await ask(session, url)

    return asyncio.run(story())


def test_kopf_gets_lists_and_watches_of_identities_and_other_answers_as_they_are() -> None:
    jobs = JobsBeside()
    lines = b"\n".join([event("ADDED", job("one", uid="1")), event("MODIFIED", job("two", uid="2")), b""])

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"resources": []})
        if request.query.get("watch") == "true":
            return web.Response(body=lines, content_type="application/json")
        return web.json_response({"kind": "L", "apiVersion": "v", "metadata": {}, "items": [job("three", uid="3")]})

    async def ask(session: aiohttp.ClientSession, url: str) -> tuple[JsonObject, JsonObject, list[bytes]]:
        listed = await (await session.get(f"{url}/{names.PLURAL}")).json()
        discovered = await (await session.get(f"{url}/apis")).json()
        reply = await session.get(f"{url}/{names.PLURAL}?watch=true")
        return listed, discovered, [line async for line in reply.content.iter_chunked(10)]

    listed, discovered, told = asked(answer, ask, jobs)
    assert sorted(fields_of(dig(listed, "items", 0, "metadata"))) == IDENTITY
    assert discovered == {"resources": []}
    assert [(line[-1:], sorted(json.loads(line)["object"]["metadata"])) for line in told] == [(b"\n", IDENTITY)] * 2
    assert versions_of(jobs, "1", "2", "3") == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("given", "told"), [("7", "7"), ("3600", "60"), ("inf", "60"), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_kopf_is_told_to_come_back_within_a_minute(given: str, told: str | None) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": given})

    async def ask(session: aiohttp.ClientSession, url: str) -> str | None:
        return (await session.get(f"{url}/{names.PLURAL}?watch=true")).headers.get("Retry-After")

    assert asked(answer, ask) == told


def test_credentials_that_were_refused_are_known_again() -> None:
    def session(token: str) -> KopfSession:
        return KopfSession(kopf.ConnectionInfo(server="http://127.0.0.1:1", token=token), JobsBeside())

    assert session("a") == session("a")
    assert session("a") != session("b")
    assert isinstance(session("a"), kopf.AiohttpSession)
