"""A DistributedTrainingJob as an object of the API server: identity, and spec and status as far as they can be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from dtj.api import names
from dtj.api.json import JsonObject, dig, text
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus


@dataclass(frozen=True, slots=True)
class Job:
    """One job. ``spec`` is None where it cannot be read; ``problems`` then says why, one line a problem.

    The API server's schema refuses such objects, but a CRD may be older than its operator, so that
    whatever a server could store must be readable without an exception.
    """

    namespace: str
    name: str
    uid: str
    generation: int = 1
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    deleting: bool = False
    spec: JobSpec | None = None
    problems: tuple[str, ...] = ()
    status: JobStatus = field(default_factory=JobStatus)
    raw_spec: JsonObject = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name): the work queue's key."""
        return self.namespace, self.name

    @classmethod
    def from_object(cls, body: JsonObject) -> Job:
        """Read a job from the API server's JSON; never raises, see ``problems``."""
        raw = dig(body, "spec")
        raw_spec = raw if isinstance(raw, dict) else {}
        spec, problems = _read_spec(raw_spec)
        metadata = dig(body, "metadata")
        generation = dig(metadata, "generation")
        labels = dig(metadata, "labels")
        return cls(
            namespace=text(dig(metadata, "namespace"), "default"),
            name=text(dig(metadata, "name")),
            uid=text(dig(metadata, "uid")),
            generation=generation if isinstance(generation, int) else 1,
            resource_version=text(dig(metadata, "resourceVersion")),
            labels={k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else {},
            created_at=parse_time(dig(metadata, "creationTimestamp")),
            deleting=dig(metadata, "deletionTimestamp") is not None,
            spec=spec,
            problems=problems,
            status=JobStatus.from_object(dig(body, "status")),
            raw_spec=raw_spec,
        )

    def owner_reference(self) -> JsonObject:
        """The ownerReference that every child carries, so that the garbage collector removes it with the job."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def parse_time(value: object) -> datetime | None:
    """A timestamp of the API server as an aware datetime; None where there is none or it cannot be read."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def _read_spec(raw: JsonObject) -> tuple[JobSpec | None, tuple[str, ...]]:
    try:
        return JobSpec.model_validate(raw), ()
    except ValidationError as error:
        return None, tuple(
            f"{'.'.join(['spec', *map(str, problem['loc'])])}: {problem['msg']}" for problem in error.errors()
        )
