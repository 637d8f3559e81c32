"""A job as an object of the API server: identity, form, and the readable parts of spec and status."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from pydantic import JsonValue

from dtj.api import kueue, volcano
from dtj.api.form import DTJ, Form
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus
from dtj.api.tfjob import form as tfjob


class Owned(Protocol):
    """An object that may belong to a job; ``owner_uid`` is the UID of its controlling owner, empty for none."""

    @property
    def namespace(self) -> str: ...

    @property
    def owner_uid(self) -> str: ...


SPEC_PROBLEM: Final = "specProblem"
"""Where a body says why it lacks the spec: see :mod:`dtj.kube.job_body`."""

MAX_SPEC_BYTES: Final = 262_144
"""Longest spec that is read, as the API server writes it. A large one, with a template for each role, has 20,000."""


MAX_SPEC_VALUES: Final = 10_000
"""Most values in a spec that is read, counted by :func:`values_in`. A large one has 1,500. A value of two bytes takes
up to 350 bytes in a pass, and 64 passes may wait for an answer at the same time."""

MAX_SPEC_LEVELS: Final = 100
"""Most levels of objects and lists in a spec that is read. A large one has 20. Readers call themselves for each level,
which Python allows 1,000 times."""

_TEXTS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS: Final = re.compile(rb"[\[{]|[\]}]")
_SIGNS: Final = (b"{", b"[", b",")


def size_problem(spec: bytes) -> str:
    """Why a spec is too large to be read, from its JSON as the API server writes it; empty if it is not."""
    if len(spec) > MAX_SPEC_BYTES:
        return (
            f"spec: is {len(spec):,} bytes long, and the operator reads {MAX_SPEC_BYTES:,} at most: put scripts and "
            "data into a ConfigMap, a volume or the image"
        )
    if (values := values_in(spec)) > MAX_SPEC_VALUES:
        return (
            f"spec: has {values:,} values, and the operator reads {MAX_SPEC_VALUES:,} at most: remove what Kubernetes "
            "does not know, and put data into a ConfigMap, a volume or the image"
        )
    if _levels_in(spec) > MAX_SPEC_LEVELS:
        return (
            f"spec: has more than {MAX_SPEC_LEVELS} levels of objects and lists, and the operator reads no more: "
            "remove what Kubernetes does not know"
        )
    return ""


def values_in(text: bytes) -> int:
    """About how many values JSON has, without decoding it: its commas and opening brackets outside of texts."""
    if sum(map(text.count, _SIGNS)) <= MAX_SPEC_VALUES:
        return 0
    return sum(map(_TEXTS.sub(b"", text).count, _SIGNS))


def _levels_in(text: bytes) -> int:
    """How deep objects and lists are nested, without decoding it; 0 where there are too few of them to matter."""
    if text.count(b"{") + text.count(b"[") <= MAX_SPEC_LEVELS:
        return 0
    level = deepest = 0
    for sign in _BRACKETS.findall(_TEXTS.sub(b"", text)):
        level += 1 if sign in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def as_stored_text(spec: object) -> bytes:
    """A spec as the API server writes it: JSON without spaces, in UTF-8, with ``<``, ``>`` and ``&`` as escapes of six
    bytes."""
    written = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return written.encode(errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Job:
    """One job. ``spec`` is None if it cannot be read; ``problems`` then has one line for each problem.

    The API server's schema refuses such objects, but a CRD may be older than its operator, so that
    whatever a server could store must be readable without an exception.
    """

    namespace: str
    name: str
    uid: str
    form: Form = DTJ
    generation: int = 1
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    """Those of Kueue and of Volcano."""

    created_at: datetime | None = None
    deleting: bool = False
    spec: JobSpec | None = None
    problems: tuple[str, ...] = ()
    status: JobStatus = field(default_factory=JobStatus)
    raw_spec: JsonObject = field(default_factory=dict)
    raw_status: JsonObject = field(default_factory=dict)
    """The status as it is stored: what the next write is compared to."""

    prebuilt_workload: str = ""
    """The Workload of Kueue that others made for this job; empty if our operator makes it."""

    @property
    def attempt(self) -> int:
        """The attempt that runs, or that is the first to run."""
        return max(self.status.attempt, 1)

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name): the work queue's key."""
        return self.namespace, self.name

    @property
    def identity(self) -> tuple[str, str]:
        """(namespace, UID): what distinguishes this job from its predecessors of the same name."""
        return self.namespace, self.uid

    @classmethod
    def from_object(cls, body: JsonObject) -> Job:
        """Read a job from the API server's JSON; never raises, see ``problems``."""
        raw_spec, raw_status = fields_of(body.get("spec")), fields_of(body.get("status"))
        metadata = dig(body, "metadata")
        annotations = fields_of(dig(metadata, "annotations"))
        form = form_of(body)
        problem = text(body.get(SPEC_PROBLEM))
        spec, problems = (None, (problem,)) if problem else form.read(raw_spec, annotations)
        generation = dig(metadata, "generation")
        given = fields_of(dig(metadata, "labels"))
        labels = {k: v for k, v in given.items() if isinstance(v, str)}
        return cls(
            namespace=text(dig(metadata, "namespace"), "default"),
            name=text(dig(metadata, "name")),
            uid=text(dig(metadata, "uid")),
            form=form,
            generation=generation if isinstance(generation, int) else 1,
            resource_version=text(dig(metadata, "resourceVersion")),
            labels=labels,
            annotations={**kueue.kept_annotations(annotations), **volcano.kept_annotations(annotations)},
            created_at=parse_time(dig(metadata, "creationTimestamp")),
            deleting=dig(metadata, "deletionTimestamp") is not None,
            spec=spec if spec is None or form.kueue_integration else kueue.in_queue(spec, labels.get(kueue.QUEUE, "")),
            problems=problems,
            status=form.record(raw_status),
            raw_spec=raw_spec,
            raw_status=raw_status,
            prebuilt_workload="" if form.kueue_integration else kueue.prebuilt_workload(body),
        )

    def with_status(self, raw: JsonObject) -> Job:
        """The job with this stored status."""
        return replace(self, status=self.form.record(raw), raw_status=raw)

    def owns(self, child: Owned) -> bool:
        """Whether the object belongs to this job: same namespace, and the job's UID as controlling owner.

        The UID alone proves nothing. The API server does not check owner references across namespaces, so a user can
        make a pod in their own namespace that names a job in somebody else's; the garbage collector deletes it only
        after a while.
        """
        return child.namespace == self.namespace and child.owner_uid == self.uid

    def owner_reference(self) -> JsonObject:
        """The ownerReference that every child carries, so that the garbage collector removes it with the job."""
        return {
            "apiVersion": self.form.api_version,
            "kind": self.form.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def form_of(body: JsonObject) -> Form:
    """The form of a stored job."""
    form = form_of_kind(body.get("apiVersion"), body.get("kind"))
    return tfjob.form_of(fields_of(body.get("spec"))) if form is tfjob.TFJOB else form


def form_of_kind(api_version: JsonValue, kind: JsonValue) -> Form:
    """The form of a kind of jobs, whatever its spec says. What names no kind is a DistributedTrainingJob."""
    is_tfjob = (api_version, kind) == (tfjob.TFJOB.api_version, tfjob.TFJOB.kind)
    return tfjob.TFJOB if is_tfjob else DTJ


_LATEST_YEAR: Final = 9000
"""Python's calendar ends with the year 9999, and nothing that is added to a time is 999 years long."""


def parse_time(value: object) -> datetime | None:
    """A timestamp of the API server as an aware datetime; None if there is none, or it cannot be read.

    One that no clock has ever shown counts as none: a sum with what is left never leaves the calendar."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None and 1970 <= parsed.year <= _LATEST_YEAR else None


def micro_time(moment: datetime) -> str:
    """A moment as metav1.MicroTime is written; metav1.Time has whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
