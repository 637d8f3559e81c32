"""The objects around jobs that the engine knows of, in memory, by job and owner.

Objects are converted once, when they arrive, to the flat values that the planner reads; building an
:class:`~dtj.core.observed.Observed` is a few look-ups. Nothing here calls the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dtj.api.job import Job, Owned
from dtj.api.names import Label
from dtj.engine.job_store import JobRecord
from dtj.kube.informer import Change
from dtj.kube.records import Key, Metadata, Record


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

    def of(self, job: Job | JobRecord) -> dict[Key, C]:
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
