"""Jobs as they come off the wire: their metadata, and what else the operator reads of a job as undecoded JSON.

A job is what a user wrote, up to 1.5 MiB, and its template may hold what no schema knows: decoded, 1.3 MB of
``[{},{},…]`` take 30 MiB. So each object is looked at before its spec is decoded, and takes as much memory as its JSON
is long. Of a spec that is too long, or has too many values, only the problem stays: see
:func:`dtj.api.job.size_problem`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dtj.api import kueue, names, volcano
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


class JobEvent(msgspec.Struct):
    """A line of a watch: what happened to a job, and the job."""

    type: str
    object: JobObject


class _Type(msgspec.Struct):
    type: str = ""


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] = []


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of a list of jobs, without those that cannot be read."""

    head: JsonObject
    """The list without its items."""

    jobs: list[JobObject]


_decode_job = reader(JobObject)
_decode_head = reader(_Head)
_decode_event = reader(JobEvent)
_decode_type = reader(_Type)
_decode_list = reader(_List)
_encode = msgspec.json.Encoder().encode

_LONGEST_HEAD: Final = 1024
"""A controller's name is shorter than that."""

_OF_JOBS: Final = ("ADDED", "MODIFIED", "DELETED")

_OTHERS: Final = (kueue.PREBUILT_WORKLOAD, *tfjob.ANNOTATIONS)


def read_job(raw: bytes | msgspec.Raw) -> JobObject:
    """What is read of a job. Raises Unreadable if it is none."""
    return _kept(_decode_job(raw))


def job_from_object(body: JsonObject) -> JobObject:
    """The same of a job that is an object already."""
    return read_job(_encode(body))


def read_page(raw: bytes) -> JobPage:
    """A page of a list of jobs. Raises Unreadable if it is no list."""
    page, jobs = _decode_list(raw), list[JobObject]()
    for item in page.items:
        with suppress(Unreadable):
            jobs.append(read_job(item))
    return JobPage({"kind": page.kind, "apiVersion": page.api_version, "metadata": page.metadata}, jobs)


def read_event(line: bytes) -> JobEvent | None:
    """A line of a watch on jobs; None if it is about no job. Raises Unreadable if that job cannot be read."""
    try:
        event = _decode_event(line)
    except Unreadable:
        if _is_of_job(line):
            raise
        return None
    if event.type not in _OF_JOBS:
        return None
    event.object = _kept(event.object)
    return event


def _is_of_job(line: bytes) -> bool:
    try:
        return _decode_type(line).type in _OF_JOBS
    except Unreadable:
        return False


def _kept(job: JobObject) -> JobObject:
    """The job without what is not read of it, and with copies of the rest: what was decoded keeps the whole alive."""
    spec = bytes(job.spec)
    job.spec_problem = size_problem(spec)
    if job.spec_problem:
        head = _encode(_decode_head(spec))
        spec = head if len(head) < _LONGEST_HEAD else b"{}"
    job.spec, job.status = msgspec.Raw(spec), job.status.copy()
    job.metadata.annotations = _kept_annotations(job.metadata.annotations)
    return job


def _kept_annotations(annotations: dict[str, Any] | None) -> dict[str, Any] | None:
    """The annotations that are read. The API server limits all of a job's to 256 KiB."""
    found = annotations or {}
    others = {key: found[key] for key in _OTHERS if key in found}
    return {**kueue.kept_annotations(found), **volcano.kept_annotations(found), **others} or None
