"""Jobs as they come off the wire: undecoded JSON, with what the operator reads of a job and no more.

A job is what a user wrote, up to 1.5 MiB, and its template may hold what no schema knows: decoded, 1.3 MB of
``[{},{},…]`` take 30 MiB. So each object is looked at before its spec is decoded, and stays JSON. Of a spec that is too
long, or has too many values, only the problem stays: see :func:`dtj.api.job.size_problem`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dtj.api import kueue, names
from dtj.api.job import size_problem
from dtj.api.json import JsonObject
from dtj.api.tfjob import read as tfjob
from dtj.kube.decoding import Unreadable, reader


class _Labels(msgspec.Struct, omit_defaults=True):
    queue: str = msgspec.field(name=kueue.QUEUE, default="")
    priority_class: str = msgspec.field(name=kueue.PRIORITY_CLASS, default="")
    max_execution_seconds: str = msgspec.field(name=kueue.MAX_EXECUTION_SECONDS, default="")
    origin: str = msgspec.field(name=kueue.MULTIKUEUE_ORIGIN, default="")
    prebuilt_workload: str = msgspec.field(name=kueue.PREBUILT_WORKLOAD, default="")


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """The metadata that is read: of labels Kueue's, and few annotations. The others and managed fields may be long."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: _Labels | None = None
    annotations: dict[str, Any] | None = None


class _Head(msgspec.Struct, rename="camel", omit_defaults=True):
    """What must be known even of a spec that is too large: whether the job is ours at all."""

    managed_by: Any = None
    run_policy: Any = None
    """Of a TFJob, where the controller is named here."""


class JobObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """A job without what is not read of it. Encoded, it is a body that :meth:`dtj.api.job.Job.from_object` reads."""

    metadata: _Metadata
    kind: str = names.KIND
    api_version: str = names.API_VERSION
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")
    spec_problem: str = ""
    """Why the spec was left out; empty if it is there."""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] = []


_decode_job = reader(JobObject)
_decode_head = reader(_Head)
_decode_line = reader(_Line)
_decode_list = reader(_List)
_encode = msgspec.json.Encoder().encode

_LONGEST_HEAD: Final = 1024
"""A controller's name is shorter than that."""

_OF_JOBS: Final = ("ADDED", "MODIFIED", "DELETED")

_OTHERS: Final = (kueue.PREBUILT_WORKLOAD, *tfjob.ANNOTATIONS)

_TEXT: Final = "text"
"""Where an object has the JSON of a job, in place of the job: see :func:`in_short`."""


def read_job(raw: bytes | msgspec.Raw) -> JobObject:
    """What is read of a job. Raises Unreadable if it is none."""
    found = _decode_job(raw)
    found.metadata.annotations = _kept(found.metadata.annotations)
    found.spec_problem = found.spec_problem or size_problem(bytes(found.spec))
    if found.spec_problem:
        head = _encode(_decode_head(found.spec))
        found.spec = msgspec.Raw(head if len(head) < _LONGEST_HEAD else b"{}")
    return found


def _kept(annotations: dict[str, Any] | None) -> dict[str, Any] | None:
    """The annotations that are read. The API server limits all of a job's to 256 KiB."""
    found = annotations or {}
    others = {key: found[key] for key in _OTHERS if key in found}
    return {**kueue.kept_annotations(found), **others} or None


def in_short(raw: bytes | msgspec.Raw) -> JsonObject:
    """A job as an object that takes as much memory as its JSON is long: its identity, and that JSON as a text.

    Raises Unreadable if it is none.
    """
    job = read_job(raw)
    identity: JsonObject = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
        "resourceVersion": job.metadata.resource_version,
    }
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "metadata": identity,
        _TEXT: _encode(job).decode(),
    }


def json_of(body: JsonObject) -> bytes:
    """The JSON of a job that came as :func:`in_short` makes it, or as an object."""
    text = body.get(_TEXT)
    return text.encode() if isinstance(text, str) else _encode(body)


def decode_jobs(raw: bytes) -> JsonObject:
    """A page of a list of jobs, each :func:`in_short`; without those that cannot be read. Raises Unreadable if it is no
    list."""
    page = _decode_list(raw)
    items = (_readable_in_short(item) for item in page.items)
    return {
        "kind": page.kind,
        "apiVersion": page.api_version,
        "metadata": page.metadata,
        "items": [item for item in items if item is not None],
    }


def shortened(line: bytes) -> bytes:
    """A line of a watch on jobs, with the job :func:`in_short`; another line as it is. Empty if the job cannot be read:
    kopf would end at it, again and again."""
    try:
        event = _decode_line(line)
    except Unreadable:
        return line
    if event.type not in _OF_JOBS:
        return line
    job = _readable_in_short(event.object)
    return b"" if job is None else _encode({"type": event.type, "object": job})


def _readable_in_short(raw: msgspec.Raw) -> JsonObject | None:
    """A job :func:`in_short`; None if it cannot be read. A list of the feed's own names that one."""
    try:
        return in_short(raw)
    except Unreadable:
        return None
