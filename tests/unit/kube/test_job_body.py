"""Jobs off the wire: what is not read of them is not kept, and nothing is decoded before it is looked at."""

from __future__ import annotations

import asyncio
import json

import kopf
import msgspec
import pytest
from aiohttp import web

from builders import NOW, manifest, seen, stored
from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at, objects
from dtj.app.watch import WatchSession
from dtj.core.actions import PatchStatus
from dtj.core.planner import plan
from dtj.engine.job_store import JobRecord
from dtj.kube.job_body import decode_jobs, in_short, shortened
from support.web_server import served


def huge(**spec: object) -> JsonObject:
    """A job that takes 30 times as much memory, decoded, as it is long."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [{} for _ in range(100_000)]}}
    return stored(manifest(template=junk, **spec))  # type: ignore[arg-type]


def raw(body: JsonObject) -> bytes:
    return json.dumps(body).encode()


def read(given: bytes) -> Job:
    """A job as it is planned, after its way from the API server through kopf and the store."""
    return JobRecord.from_object(in_short(given)).job()


def complaint(given: JsonObject) -> str:
    """What the status says of a job that is invalid."""
    (patch,) = (
        action for action in plan(seen(JobRecord.from_object(given).job()), NOW) if isinstance(action, PatchStatus)
    )
    condition = next(c for c in patch.status.conditions if c.type == "Invalid")
    assert (condition.status, condition.reason) == ("True", "InvalidSpec")
    return condition.message


def test_a_spec_that_is_too_long_is_named_with_its_length_and_makes_the_job_invalid() -> None:
    body = huge()
    length = len(raw(body["spec"]))  # type: ignore[arg-type]
    assert complaint(in_short(raw(body))).startswith(
        f"spec: is {length:,} bytes long, and the operator reads 262,144 at most: put"
    )


def many_values(number: int) -> JsonObject:
    """A short job whose template has so many values that nobody knows."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [0 for _ in range(number)]}}
    return stored(manifest(template=junk))


def test_a_spec_with_too_many_values_makes_the_job_invalid_and_is_not_decoded() -> None:
    short = in_short(msgspec.json.encode(many_values(60_000)))
    assert len(json.dumps(short)) < 1000
    message = complaint(short)
    assert message.startswith("spec: has 60,0")
    assert " values, and the operator reads 10,000 at most: remove what" in message


def test_a_script_with_many_commas_and_brackets_is_one_value() -> None:
    script = 'print([{"a": 1}, {\n"b": "\\", \'c\': (1, 2)}])' * 3_000
    container = {"name": "trainer", "image": "x", "args": ["-c", script]}
    spec = read(raw(stored(manifest(template={"spec": {"containers": [container]}})))).spec
    assert spec is not None
    assert dig(spec.template, "spec", "containers", 0, "args", 1) == script


def test_a_job_of_another_controller_is_left_alone_however_long() -> None:
    assert plan(seen(read(raw(huge(managedBy="a.dev/b")))), NOW) == ()


def test_a_controller_whose_name_is_none_makes_no_job_long() -> None:
    body = many_values(60_000)
    body["spec"] = {**object_at(body, "spec"), "managedBy": [0] * 60_000}
    job = read(msgspec.json.encode(body))
    assert job.raw_spec == {}
    assert "values" in job.problems[0]


def test_a_job_is_the_same_however_it_came() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "trainer", "image": "x"}]}}
    body = stored(manifest(template=template, checkpoint={"volume": {"emptyDir": {}}, "keep": 3}))
    assert read(raw(body)) == JobRecord.from_object(body).job() == JobRecord.from_json(raw(body)).job()
    assert read(raw(body)) == Job.from_object(body)


def test_a_line_of_a_watch_that_is_no_job_stays_as_it_is() -> None:
    for line in (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}',
        b"no JSON",
    ):
        assert shortened(line) == line


def deep(levels: int, **spec: str) -> bytes:
    """A job with so many objects in objects where its template keeps unknown fields."""
    body = stored(manifest(template={"spec": {"containers": [{"name": "trainer", "image": "x"}], "unknown": "DEEP"}}))
    return raw({**body, "spec": {**object_at(body, "spec"), **spec}}).replace(
        b'"DEEP"', b'{"a":' * levels + b"1" + b"}" * levels
    )


@pytest.mark.parametrize("levels", [100, 200, 900, 9_000])
def test_a_job_of_many_levels_is_invalid_and_the_others_are_read(levels: int) -> None:
    page = decode_jobs(b'{"metadata":{},"items":[' + deep(levels) + b"," + raw(stored(manifest("other"))) + b"]}")
    one, other = (JobRecord.from_object(item) for item in objects(page["items"]))
    assert other.job().problems == ()
    assert one.job().problems[0].startswith("spec: has more than 100 levels of objects and lists, and")
    assert complaint(in_short(deep(levels))) == one.job().problems[0]
    event = msgspec.json.decode(shortened(b'{"type":"ADDED","object":' + deep(levels) + b"}"))
    assert JobRecord.from_object(event["object"]).job().problems == one.job().problems


def test_a_job_of_another_controller_is_left_alone_however_deep() -> None:
    assert plan(seen(read(deep(9_000, managedBy="a.dev/b"))), NOW) == ()


def test_a_status_of_many_levels_keeps_what_can_be_read() -> None:
    body = raw({**stored(manifest()), "status": {"attempt": 3, "progress": {"metrics": "DEEP"}}})
    given = body.replace(b'"DEEP"', b"[" * 9_000 + b"]" * 9_000)
    assert read(given).status.attempt == 3


def test_what_cannot_be_read_is_left_out_of_lists_and_watches_and_the_others_stay() -> None:
    page = decode_jobs(b'{"metadata":{},"items":[7,{"metadata":{"name":8}},' + raw(stored(manifest("other"))) + b"]}")
    assert [dig(item, "metadata", "name") for item in objects(page["items"])] == ["other"]
    assert shortened(b'{"type":"ADDED","object":7}') == b""


def test_a_page_keeps_its_place_in_the_list() -> None:
    page: JsonObject = {"kind": "DistributedTrainingJobList", "metadata": {"continue": "next", "resourceVersion": "9"}}
    read = decode_jobs(raw({**page, "items": [stored(manifest())]}))
    assert read["metadata"] == page["metadata"]
    assert dig(read, "items", 0, "metadata", "name") == "digits"


def test_kopf_gets_lists_and_watches_whose_jobs_are_short() -> None:
    async def story() -> tuple[JsonObject, list[JsonObject], JsonObject]:
        line = raw({"type": "ADDED", "object": huge()})
        lines = line + b"\n" + raw({"type": "MODIFIED", "object": stored(manifest())}) + b"\n"

        async def answer(request: web.Request) -> web.Response:
            if request.path == "/apis":
                return web.json_response({"resources": []})
            if request.query.get("watch") == "true":
                return web.Response(body=lines, content_type="application/json")
            return web.json_response({"kind": "L", "apiVersion": "v", "metadata": {}, "items": [huge()]})

        async with served(answer) as url, WatchSession(kopf.ConnectionInfo(server=url)).aiohttp_session as session:
            listed = await (await session.get(f"{url}/{names.PLURAL}")).json()
            discovered = await (await session.get(f"{url}/apis")).json()
            reply = await session.get(f"{url}/{names.PLURAL}?watch=true")
            received = b"".join([chunk async for chunk in reply.content.iter_chunked(1000)])
            return listed, [msgspec.json.decode(part) for part in received.splitlines()], discovered

    listed, events, discovered = asyncio.run(story())
    item = dig(listed, "items", 0)
    assert len(json.dumps(item)) < 2000
    assert "bytes long" in JobRecord.from_object(item).job().problems[0]  # type: ignore[arg-type]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED"]
    assert all(len(json.dumps(event)) < 2000 for event in events)
    assert discovered == {"resources": []}


@pytest.mark.parametrize(
    ("given", "told"), [("7", "7"), ("3600", "60"), ("inf", "60"), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_kopf_is_told_to_come_back_within_a_minute(given: str, told: str | None) -> None:
    async def story() -> str | None:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=429, headers={"Retry-After": given})

        async with served(answer) as url, WatchSession(kopf.ConnectionInfo(server=url)).aiohttp_session as session:
            reply = await session.get(f"{url}/{names.PLURAL}?watch=true")
            return reply.headers.get("Retry-After")

    assert asyncio.run(story()) == told


def test_credentials_that_were_refused_are_known_again() -> None:
    def session(token: str) -> WatchSession:
        return WatchSession(kopf.ConnectionInfo(server="http://127.0.0.1:1", token=token))

    assert session("a") == session("a")
    assert session("a") != session("b")
    assert isinstance(session("a"), kopf.AiohttpSession)


def test_of_the_labels_only_those_of_kueue_are_kept() -> None:
    labels = {"app": "x" * 60, "kueue.x-k8s.io/queue-name": "gpus"}
    given = json.dumps({"metadata": {"name": "digits", "labels": labels}, "spec": {}}).encode()
    assert read(given).labels == {"kueue.x-k8s.io/queue-name": "gpus"}


def test_of_the_annotations_only_those_of_kueue_are_kept_and_reach_the_plan() -> None:
    known = {"kueue.x-k8s.io/admission-gated-by": "a.b/c", "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60"}
    body = stored(manifest())
    metadata = {**object_at(body, "metadata"), "annotations": {"kubectl": "x" * 60, **known}}
    short = in_short(json.dumps({**body, "metadata": metadata}).encode())
    assert "xxx" not in json.dumps(short)
    assert JobRecord.from_object(short).job().annotations == known
