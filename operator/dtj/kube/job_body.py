"""Jobs as the operator reads them off the wire: what it reads, and no more of a job than it is willing to keep.

A job is what a user wrote, up to 1.5 MiB, and ``spec.template`` may hold what no schema knows: decoded, 1.3 MB of
``[{},{},…]`` take 30 MiB. So each object is looked at before it is decoded. Its spec stays text, which takes as much
memory as it is long; a spec that is too long, or has too many values, is not decoded at all, and the job's body says so
instead: see :func:`dtj.api.job.size_problem`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dtj.api import kueue, names
from dtj.api.job import MAX_SPEC_BYTES, SPEC_PROBLEM, SPEC_TEXT, has_many_values, size_problem
from dtj.api.json import JsonObject
from dtj.kube.gateway import Keep, everywhere
from dtj.kube.records import decode_identity


class _Labels(msgspec.Struct, omit_defaults=True):
    queue: str = msgspec.field(name=kueue.QUEUE, default="")
    priority_class: str = msgspec.field(name=kueue.PRIORITY_CLASS, default="")
    max_execution_seconds: str = msgspec.field(name=kueue.MAX_EXECUTION_SECONDS, default="")
    origin: str = msgspec.field(name=kueue.MULTIKUEUE_ORIGIN, default="")
    prebuilt_workload: str = msgspec.field(name=kueue.PREBUILT_WORKLOAD, default="")


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """The metadata that is read: of labels and annotations only Kueue's. The others and managed fields may be long."""

    name: str = ""
    namespace: str = ""
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


class _JobObject(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] = []


_decode_job = msgspec.json.Decoder(_JobObject).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_list = msgspec.json.Decoder(_List).decode
_encode = msgspec.json.Encoder().encode

_LONGEST_HEAD: Final = 1024
"""A controller's name is shorter than that."""

_OF_JOBS: Final = ("ADDED", "MODIFIED", "DELETED")


def decode_job(raw: bytes | msgspec.Raw) -> JsonObject:
    """The body of a job, with its spec as text: what :meth:`dtj.api.job.Job.from_object` reads.

    Raises msgspec.DecodeError if it is none.
    """
    found = _decode_job(raw)
    spec = bytes(found.spec)
    found.metadata.annotations = _kept(found.metadata.annotations)
    body: JsonObject = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": msgspec.to_builtins(found.metadata),
        "status": msgspec.json.decode(found.status),
    }
    problem = size_problem(spec)
    if not problem:
        return {**body, SPEC_TEXT: spec.decode()}
    head = _encode(_decode_head(spec))
    return {**body, SPEC_TEXT: head.decode() if len(head) < _LONGEST_HEAD else "{}", SPEC_PROBLEM: problem}


def kept_of_list(item: msgspec.Raw) -> bytes:
    """A job of a list as it is kept until it is read: a large one without what is not read of it."""
    raw = bytes(item)
    return _encode(decode_job(raw)) if len(raw) > MAX_SPEC_BYTES or has_many_values(raw) else raw


def _kept(annotations: dict[str, Any] | None) -> dict[str, Any] | None:
    """Kueue's annotations. The API server limits all of a job's to 256 KiB."""
    found = annotations or {}
    prebuilt = {key: found[key] for key in (kueue.PREBUILT_WORKLOAD,) if key in found}
    return {**kueue.kept_annotations(found), **prebuilt} or None


def decode_jobs(raw: bytes, keep: Keep = everywhere) -> JsonObject:
    """A page of a list of jobs that are ours, each as :func:`decode_job` gives it. Raises msgspec.DecodeError."""
    page = _decode_list(raw)
    items = [decode_job(item) for item in page.items if _is_ours(item, keep)]
    return {"kind": page.kind, "apiVersion": page.api_version, "metadata": page.metadata, "items": [*items]}


def shortened(line: bytes, keep: Keep = everywhere) -> bytes:
    """A line of a watch on jobs, with the job as :func:`decode_job` gives it; another line as it is.

    Empty if the job is not ours.
    """
    try:
        event = _decode_line(line)
        if event.type not in _OF_JOBS:
            return line
        if not _is_ours(event.object, keep):
            return b""
        return _encode({"type": event.type, "object": decode_job(event.object)})
    except msgspec.DecodeError:
        return line


def _is_ours(raw: msgspec.Raw, keep: Keep) -> bool:
    """Whether ``keep`` has the job's namespace; nothing is decoded where all are ours."""
    return keep is everywhere or keep(decode_identity(bytes(raw)).metadata.namespace)
