"""Jobs off the wire: what is not read of them is not kept, and nothing is decoded before it is looked at."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest

from builders import NOW, manifest, seen, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at
from dtj.core.actions import PatchStatus
from dtj.core.planner import plan
from dtj.engine.job_store import JobRecord
from dtj.kube.job_body import job_from_object, read_event, read_job, read_page


def huge(**spec: object) -> JsonObject:
    """A job that takes 30 times as much memory, decoded, as it is long."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [{} for _ in range(100_000)]}}
    return stored(manifest(template=junk, **spec))  # type: ignore[arg-type]


def raw(body: JsonObject) -> bytes:
    return json.dumps(body).encode()


def read(given: bytes) -> Job:
    """A job as it is planned, after its way from the API server through the store."""
    return JobRecord.of(read_job(given)).job()


def complaint(given: bytes) -> str:
    """What the status says of a job that is invalid."""
    (patch,) = (action for action in plan(seen(read(given)), NOW) if isinstance(action, PatchStatus))
    condition = next(c for c in patch.status.conditions if c.type == "Invalid")
    assert (condition.status, condition.reason) == ("True", "InvalidSpec")
    return condition.message


def test_a_spec_that_is_too_long_is_named_with_its_length_and_makes_the_job_invalid() -> None:
    body = huge()
    length = len(raw(body["spec"]))  # type: ignore[arg-type]
    assert complaint(raw(body)).startswith(
        f"spec: is {length:,} bytes long, and the operator reads 262,144 at most: put"
    )


def many_values(number: int) -> JsonObject:
    """A short job whose template has so many values that nobody knows."""
    junk = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [0 for _ in range(number)]}}
    return stored(manifest(template=junk))


def test_a_spec_with_too_many_values_makes_the_job_invalid_and_is_not_decoded() -> None:
    given = raw(many_values(60_000))
    assert len(msgspec.json.encode(read_job(given))) < 1000
    message = complaint(given)
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
    line = read_event(b'{"type":"ADDED","object":' + raw(body) + b"}")
    (item,) = read_page(b'{"items":[' + raw(body) + b"]}").jobs
    assert line is not None
    for job in (line.object, item, read_job(raw(body)), job_from_object(body)):
        assert JobRecord.of(job).job() == Job.from_object(body)


def deep(levels: int, **spec: str) -> bytes:
    """A job with so many objects in objects where its template keeps unknown fields."""
    body = stored(manifest(template={"spec": {"containers": [{"name": "trainer", "image": "x"}], "unknown": "DEEP"}}))
    return raw({**body, "spec": {**object_at(body, "spec"), **spec}}).replace(
        b'"DEEP"', b'{"a":' * levels + b"1" + b"}" * levels
    )


@pytest.mark.parametrize("levels", [100, 200, 900, 9_000])
def test_a_job_of_many_levels_is_invalid_and_the_others_are_read(levels: int) -> None:
    page = read_page(b'{"metadata":{},"items":[' + deep(levels) + b"," + raw(stored(manifest("other"))) + b"]}")
    event = read_event(b'{"type":"ADDED","object":' + deep(levels) + b"}")
    assert event is not None
    one, other, alone = (JobRecord.of(job).job() for job in (*page.jobs, event.object))
    assert other.problems == ()
    assert complaint(deep(levels)).startswith("spec: has more than 100 levels of objects and lists, and")
    assert one.problems == alone.problems == (complaint(deep(levels)),)


def test_a_job_of_another_controller_is_left_alone_however_deep() -> None:
    assert plan(seen(read(deep(9_000, managedBy="a.dev/b"))), NOW) == ()


def test_a_status_of_many_levels_keeps_what_can_be_read() -> None:
    body = raw({**stored(manifest()), "status": {"attempt": 3, "progress": {"metrics": "DEEP"}}})
    given = body.replace(b'"DEEP"', b"[" * 9_000 + b"]" * 9_000)
    assert read(given).status.attempt == 3


def test_a_job_keeps_nothing_alive_of_the_page_that_it_came_in() -> None:
    """Twenty jobs of 1.5 MiB may be in one."""
    page = raw({"items": [stored(manifest(name)) for name in ("a", "b")]})
    held = sys.getrefcount(page)
    jobs = read_page(page).jobs
    assert sys.getrefcount(page) == held
    assert [job.metadata.name for job in jobs] == ["a", "b"]


def test_of_the_labels_only_those_of_kueue_are_kept() -> None:
    labels = {"app": "x" * 60, "kueue.x-k8s.io/queue-name": "gpus"}
    given = json.dumps({"metadata": {"name": "digits", "labels": labels}, "spec": {}}).encode()
    assert read(given).labels == {"kueue.x-k8s.io/queue-name": "gpus"}


def test_of_the_annotations_only_those_of_kueue_are_kept_and_reach_the_plan() -> None:
    known = {"kueue.x-k8s.io/admission-gated-by": "a.b/c", "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60"}
    body = stored(manifest())
    metadata: JsonObject = {**object_at(body, "metadata"), "annotations": {"kubectl": "x" * 60, **known}}
    given = raw({**body, "metadata": metadata})
    assert b"xxx" not in msgspec.json.encode(read_job(given))
    assert read(given).annotations == known
