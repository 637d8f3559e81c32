"""The objects around jobs that the engine knows of, in memory, by job and owner.

Objects are converted once, when they arrive, to the flat values that the planner reads; building an
:class:`~dtj.core.observed.Observed` is a few look-ups. Nothing here calls the API server.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from dtj.api.job import Job
from dtj.core.observed import Child, GangObject, Pod
from dtj.engine.job_store import JobRecord
from dtj.kube.informer import Change
from dtj.kube.records import Key

C = TypeVar("C", Pod, Child, GangObject)


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

    def apply(self, change: Change[C]) -> None:
        """Take over what an informer saw."""
        if change.before is not None:
            child = change.before
            key = (child.namespace, child.name)
            self._by_key.pop(key, None)
            _remove(self._by_job, job_of(child), key)
            _remove(self._by_owner, (child.namespace, child.owner_uid), key)
        if change.after is not None:
            child = change.after
            key = (child.namespace, child.name)
            self._by_key[key] = child
            self._by_job.setdefault(job_of(child), {})[key] = child
            self._by_owner.setdefault((child.namespace, child.owner_uid), {})[key] = child


def _remove(index: dict[Key, dict[Key, C]], entry: Key, key: Key) -> None:
    children = index.get(entry, {})
    children.pop(key, None)
    if not children:
        index.pop(entry, None)


def job_of(child: Pod | Child | GangObject) -> Key:
    """The job that an object's labels name."""
    return child.namespace, child.job_name
