"""Jobs off the wire: what is not read is not decoded, and what only planning reads is kept as text."""

from __future__ import annotations

import asyncio
import json

import kopf
import msgspec
from aiohttp import web

from builders import NOW, manifest, seen, stored
from dtj.api import names
from dtj.api.json import JsonObject, dig, object_at
from dtj.app.watch import WatchSession
from dtj.core.actions import PatchStatus
from dtj.core.planner import plan
from dtj.engine.stores import JobRecord
from dtj.kube.job_body import decode_job, decode_jobs, kept_of_list, shortened
from support.web_server import served


def huge(**spec: object) -> JsonObject:
    """A job that takes 30 times as much memory, decoded, as it is long."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [{} for _ in range(100_000)]}}
    return stored(manifest(template=junk, **spec))  # type: ignore[arg-type]


def raw(body: JsonObject) -> bytes:
    return json.dumps(body).encode()


def test_a_spec_that_is_too_long_is_named_with_its_length_and_makes_the_job_invalid() -> None:
    body = huge()
    length = len(raw(body["spec"]))  # type: ignore[arg-type]
    job = JobRecord.from_object(decode_job(raw(body))).whole()
    actions = plan(seen(job), NOW)
    (patch,) = (action for action in actions if isinstance(action, PatchStatus))
    condition = next(c for c in patch.status.conditions if c.type == "Invalid")
    assert (condition.status, condition.reason) == ("True", "InvalidSpec")
    assert condition.message.startswith(f"spec: is {length:,} bytes long, and the operator reads 262,144 at most: put")


def many_values(number: int) -> JsonObject:
    """A short job whose template has so many values that nobody knows."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [0 for _ in range(number)]}}
    return stored(manifest(template=junk))


def test_a_spec_with_too_many_values_makes_the_job_invalid_and_is_not_decoded() -> None:
    record = JobRecord.from_object(decode_job(msgspec.json.encode(many_values(60_000))))
    assert len(record.spec or "") < 100
    (patch,) = (action for action in plan(seen(record.whole()), NOW) if isinstance(action, PatchStatus))
    condition = next(c for c in patch.status.conditions if c.type == "Invalid")
    assert (condition.status, condition.reason) == ("True", "InvalidSpec")
    assert condition.message.startswith("spec: has 60,0")
    assert " values, and the operator reads 10,000 at most: remove what" in condition.message


def test_of_a_list_a_job_with_too_many_values_is_kept_as_short_as_of_a_watch() -> None:
    raw = msgspec.json.encode(many_values(60_000))
    assert len(kept_of_list(msgspec.Raw(raw))) < 2000
    usual = msgspec.json.encode(many_values(60))
    assert kept_of_list(msgspec.Raw(usual)) == usual


def test_a_script_with_many_commas_and_brackets_is_one_value() -> None:
    script = 'print([{"a": 1}, {\n"b": "\\", \'c\': (1, 2)}])' * 3_000
    container = {"name": "trainer", "image": "x", "args": ["-c", script]}
    whole = JobRecord.from_object(decode_job(raw(stored(manifest(template={"spec": {"containers": [container]}})))))
    spec = whole.whole().spec
    assert spec is not None
    assert dig(spec.template, "spec", "containers", 0, "args", 1) == script


def test_a_job_of_another_controller_is_left_alone_however_long() -> None:
    job = JobRecord.from_object(decode_job(raw(huge(managedBy="a.dev/b")))).whole()
    assert plan(seen(job), NOW) == ()


def test_a_controller_whose_name_is_none_makes_no_job_long() -> None:
    body = many_values(60_000)
    body["spec"] = {**object_at(body, "spec"), "managedBy": [0] * 60_000}
    record = JobRecord.from_object(decode_job(msgspec.json.encode(body)))
    assert record.spec == "{}"
    assert "values" in record.whole().problems[0]


def test_the_store_keeps_what_only_planning_reads_as_text() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "trainer", "image": "x"}]}}
    body = stored(manifest(template=template, checkpoint={"volume": {"emptyDir": {}}, "keep": 3}))
    record = JobRecord.from_object(decode_job(raw(body)))
    assert record.job.spec is not None
    assert record.job.spec.template is None
    assert record.job.spec.checkpoint is not None
    assert (record.job.spec.checkpoint.keep, record.job.spec.checkpoint.volume) == (3, None)
    assert record.job.raw_spec == {}
    whole = record.whole()
    assert whole.spec is not None
    assert whole.spec.template == template
    assert whole.raw_spec == body["spec"]
    assert whole == JobRecord.from_object(body).whole(), "however it came"


def test_what_cannot_be_read_is_reported_when_the_job_is_planned() -> None:
    record = JobRecord.from_object(decode_job(raw(stored(manifest(template=["no", "template"])))))
    (problem,) = record.whole().problems
    assert problem.startswith("spec.template: ")


def test_a_line_of_a_watch_that_is_no_job_stays_as_it_is() -> None:
    for line in (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}',
        b"no JSON",
        b'{"type":"ADDED","object":7}',
    ):
        assert shortened(line) == line


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
    assert "bytes long" in str(dig(item, "specProblem"))
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED"]
    assert all(len(json.dumps(event)) < 2000 for event in events)
    assert discovered == {"resources": []}


def test_credentials_that_were_refused_are_known_again() -> None:
    def session(token: str) -> WatchSession:
        return WatchSession(kopf.ConnectionInfo(server="http://127.0.0.1:1", token=token))

    assert session("a") == session("a")
    assert session("a") != session("b")
    assert isinstance(session("a"), kopf.AiohttpSession)


def test_of_the_labels_only_those_of_kueue_are_kept() -> None:
    labels = {"app": "x" * 60, "kueue.x-k8s.io/queue-name": "gpus"}
    raw = json.dumps({"metadata": {"name": "digits", "labels": labels}, "spec": {}}).encode()
    assert dig(decode_job(raw), "metadata", "labels") == {"kueue.x-k8s.io/queue-name": "gpus"}


def test_of_the_annotations_only_those_of_kueue_are_kept_and_reach_the_plan() -> None:
    read = {"kueue.x-k8s.io/admission-gated-by": "a.b/c", "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60"}
    body = stored(manifest())
    metadata = {**object_at(body, "metadata"), "annotations": {"kubectl": "x" * 60, **read}}
    decoded = decode_job(json.dumps({**body, "metadata": metadata}).encode())
    assert dig(decoded, "metadata", "annotations") == read
    assert JobRecord.from_object(decoded).whole().annotations == read


def test_the_queue_of_a_label_is_part_of_the_spec_that_is_planned() -> None:
    body = stored(manifest())
    labelled = {**body, "metadata": {**object_at(body, "metadata"), "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}
    whole = JobRecord.from_object(decode_job(json.dumps(labelled).encode())).whole()
    assert whole.spec is not None
    assert whole.spec.run_policy.scheduling is not None
    assert whole.spec.run_policy.scheduling.queue == "gpus"
