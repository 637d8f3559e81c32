"""What the engine knows of the cluster, in memory: a job as it is read, and the objects around it, by job and owner.

Objects are converted once, when they arrive, to the flat values that the planner reads; building an
:class:`~dtj.core.observed.Observed` is a few look-ups. Nothing here calls the API server.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from pydantic import JsonValue

from dtj.api.job import SPEC_PROBLEM, SPEC_TEXT, Job, Owned, spec_of
from dtj.api.json import JsonObject, dig
from dtj.api.names import Label
from dtj.kube.informer import Change
from dtj.kube.records import Key, Metadata, Record


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, with its status as it is stored: what the next write is compared to. It is kept as compressed JSON, since
    there are many jobs and few writes.

    ``job`` lacks the parts of the spec that only planning needs, such as templates. They are kept as JSON text: decoded
    they take up to 25 times as much memory, and users decide how many there are. :meth:`whole` reads them.
    """

    job: Job
    packed_status: bytes | None = None
    spec: str | None = None
    """The whole spec as JSON text; None where ``job`` lacks nothing."""

    refused: bool = False
    """Whether the spec was too large to be read: ``job.problems`` says so."""

    @property
    def raw_status(self) -> JsonObject:
        """The status as it is stored."""
        if self.packed_status is None:
            return {}
        return unpacked(self.packed_status)

    @classmethod
    def from_object(cls, body: JsonObject) -> JobRecord:
        """Read a job from the API server's JSON, or from :func:`dtj.kube.job_body.decode_job`; never raises."""
        status, spec = dig(body, "status"), spec_of(body)
        job = Job.from_object({**body, SPEC_TEXT: None, "spec": _light(spec)})
        given = body.get(SPEC_TEXT)
        return cls(
            job=replace(job, raw_spec={}),
            packed_status=packed(status, level=FASTEST) if isinstance(status, dict) and status else None,
            spec=given if isinstance(given, str) else msgspec.json.encode(spec).decode(),
            refused=SPEC_PROBLEM in body,
        )

    def whole(self) -> Job:
        """The job with all of its spec, for one pass."""
        if self.spec is None:
            return self.job
        read = Job.from_object({SPEC_TEXT: self.spec, "metadata": {"labels": {**self.job.labels}}})
        if self.refused:
            return replace(self.job, raw_spec=read.raw_spec)
        return replace(self.job, spec=read.spec, problems=read.problems, raw_spec=read.raw_spec)


_HEAVY: Final = frozenset({"template", "command", "args", "env", "resources", "nodeSelector", "tolerations", "volume"})
"""Fields, of a spec or of a part of it, that only planning reads, and that may be long."""


def _light(spec: JsonObject) -> JsonObject:
    """``spec`` without them."""
    light: JsonObject = {}
    for name, value in spec.items():
        if name in _HEAVY:
            continue
        if name == "replicaSpecs" and isinstance(value, dict):
            light[name] = {role: _without_heavy(part) for role, part in value.items()}
        else:
            light[name] = _without_heavy(value)
    return light


def _without_heavy(part: JsonValue) -> JsonValue:
    return {name: value for name, value in part.items() if name not in _HEAVY} if isinstance(part, dict) else part


class _Child(Owned, Protocol):
    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


C = TypeVar("C", bound=_Child)
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Labelled(Generic[C]):
    """A child, with the job that its labels name."""

    job: Key
    value: C


class ChildStore(Generic[C]):
    """Children of one kind: by name, by the job that their labels name, and by owner UID. Each index has the namespace.

    Labels may lie and owners may be others; the planner decides which object belongs to which job. But no job is
    shown an object of another namespace: see :meth:`dtj.api.job.Job.owns`.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, C] = {}
        self._by_job: dict[Key, dict[Key, C]] = {}
        self._by_owner: dict[Key, dict[Key, C]] = {}
        """By (namespace, UID of the owner)."""

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> C | None:
        """The child of this namespace and name."""
        return self._by_key.get(key)

    def of(self, job: Job) -> dict[Key, C]:
        """The children in the job's namespace that carry its name in their labels or its UID as owner."""
        return {**self._by_job.get(job.key, {}), **self._by_owner.get((job.namespace, job.uid), {})}

    def apply(self, change: Change[Labelled[C]]) -> None:
        """Take over what an informer saw."""
        if change.before is not None:
            self._drop(change.before)
        if change.after is not None:
            self._add(change.after)

    def _add(self, child: Labelled[C]) -> None:
        key = (child.value.namespace, child.value.name)
        self._by_key[key] = child.value
        self._by_job.setdefault(child.job, {})[key] = child.value
        self._by_owner.setdefault(_owner_of(child.value), {})[key] = child.value

    def _drop(self, child: Labelled[C]) -> None:
        key = (child.value.namespace, child.value.name)
        self._by_key.pop(key, None)
        _remove(self._by_job, child.job, key)
        _remove(self._by_owner, _owner_of(child.value), key)


def _owner_of(child: Owned) -> Key:
    return child.namespace, child.owner_uid


def _remove(index: dict[Key, dict[Key, C]], entry: Key, key: Key) -> None:
    children = index.get(entry, {})
    children.pop(key, None)
    if not children:
        index.pop(entry, None)


def job_of(metadata: Metadata) -> Key:
    """The job that an object's labels name."""
    return metadata.namespace, metadata.label(Label.JOB_NAME)


def labelled(convert: Callable[[R], C]) -> Callable[[R], Labelled[C]]:
    """``convert``, with the job that the object's labels name next to it."""

    def converted(record: R) -> Labelled[C]:
        return Labelled(job_of(record.metadata), convert(record))

    return converted


# -- JSON of jobs, compressed: an operator holds thousands of jobs, and reads few of them -----------------------------

FASTEST: Final = 1
SMALLEST: Final = 9

_USUAL_WORDS: Final = (
    b'"ttlSecondsAfterFinished":"cleanPodPolicy":"Running""backoffLimit":"runPolicy":{"strategy":"ParameterServer"'
    b'"MultiWorkerMirrored""replicaSpecs":{"worker":{"replicas":"template":{"spec":{"containers":[{"name":"trainer",'
    b'"image":"command":["python","-m","resources":{"requests":{"cpu":"memory":"limits":{"nvidia.com/gpu":"env":['
    b'"volumes":["volumeMounts":["mountPath":"restartPolicy":"OnFailure"'
    b'"status":{"attempt":1,"observedGeneration":1,"replicaStatuses":{"active":0,"succeeded":0,"failed":0,"ready":0,'
    b'"restarts":{"user":0,"outOfMemory":0,"preemption":0,"disruption":0},"startTime":"readyTime":"completionTime":"'
    b'"state":"Succeeded","state":"Failed","reason":"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z",'
    b'"message":"","observedGeneration":1,"reason":"JobFinished","status":"False","type":"PodsReady"},{"type":'
    b'"Reconciling"},"type":"Stalled"},"type":"Complete"},"type":"Failed"},"status":"True","type":"SuccessCriteriaMet"}'
    b'"metadata":{"name":"namespace":"default","uid":"resourceVersion":"generation":1,"creationTimestamp":"labels":{'
)
"""What most jobs have in common, for the compressor: the likeliest at the end. Any text would do."""


def packed(body: JsonObject, *, level: int) -> bytes:
    """The object compressed, :data:`FASTEST` or :data:`SMALLEST`; only :func:`unpacked` of this version reads it."""
    compressor = zlib.compressobj(level, zdict=_USUAL_WORDS)
    return compressor.compress(msgspec.json.encode(body)) + compressor.flush()


def unpacked(compressed: bytes) -> JsonObject:
    """The object that was packed."""
    body: JsonObject = msgspec.json.decode(zlib.decompressobj(zdict=_USUAL_WORDS).decompress(compressed))
    return body
