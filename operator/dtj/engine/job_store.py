"""All jobs that are known, each in its newest known version, whatever the order in which news of them comes.

News has three sources: events of a watch, answers to our own writes, and full lists. None of them is in step with the
others. kopf handles the events of each UID in a task of its own, so that events of a deleted job may come after the
first ones of its successor; an answer may come after the job's end; a list shows the moment at which the API server
began it. So the store believes:

- the higher resource version, also between two UIDs of the same name: resource versions of one resource can be compared
  (KEP-5504);
- that a UID which is over stays over: it leaves a tombstone, and later events of it are ignored;
- a full list that began after the last news of a job, also where its version is lower, and where the job was over: that
  is what an etcd looks like that was restored from a backup (kubernetes/kubernetes#107457).

"Began after" is counted in moments of this store: each piece of news that is taken over is a moment of its own.

A finished job for which nothing is left to do is put to rest: it is kept as a :class:`PackedJob` until something
wakes it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dtj.api.job import SPEC_PROBLEM, SPEC_TEXT, Job
from dtj.api.json import JsonObject
from dtj.api.kueue import PREBUILT_WORKLOAD
from dtj.engine.stores import SMALLEST, JobRecord, packed, unpacked
from dtj.kube.records import Key

MAX_TOMBSTONES: Final = 10_000
"""UIDs that are remembered as over. More would have to end between an event of a UID and its deletion."""


@dataclass(frozen=True, slots=True)
class News:
    """What a piece of news changed: whether the store has another record now, and which job that ended by it."""

    changed: bool = False
    over: JobRecord | None = None


@dataclass(slots=True)
class _Known:
    held: JobRecord | PackedJob
    since: int
    """The moment at which this UID became known."""

    at: int
    """The moment of the latest news of it."""

    @property
    def record(self) -> JobRecord:
        return self.held.record() if isinstance(self.held, PackedJob) else self.held

    @property
    def identity(self) -> Job | PackedJob:
        """Namespace, UID and version, without unpacking."""
        return self.held if isinstance(self.held, PackedJob) else self.held.job


class JobStore:
    """All jobs by (namespace, name)."""

    def __init__(self, *, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self._known: dict[Key, _Known] = {}
        self._over: OrderedDict[str, int] = OrderedDict()
        """UIDs that are over, and since which moment; the oldest first."""

        self._max_tombstones = max_tombstones
        self._moment = 0
        self._newest = 0

    def get(self, key: Key) -> JobRecord | None:
        known = self._known.get(key)
        return known.record if known is not None else None

    def __iter__(self) -> Iterator[JobRecord]:
        """All jobs but those at rest."""
        return iter([known.held for known in self._known.values() if isinstance(known.held, JobRecord)])

    def states(self) -> list[str]:
        """The state of each job, empty if it has none yet."""
        return [_state(known.held) for known in self._known.values()]

    def rest(self, record: JobRecord) -> bool:
        """Keep this version of this job packed. Returns False if another is known by now, or it is at rest."""
        known = self._known.get(record.job.key)
        if known is None or known.held is not record or record.spec is None:
            return False
        known.held = PackedJob.of(record)
        return True

    def wake(self, key: Key) -> bool:
        """Keep the job as objects again. Returns False if it is not at rest."""
        known = self._known.get(key)
        if known is None or not isinstance(known.held, PackedJob):
            return False
        known.held = known.held.record()
        return True

    def __len__(self) -> int:
        return len(self._known)

    @property
    def moment(self) -> int:
        """Now: what is taken over later has a later moment."""
        return self._moment

    @property
    def newest(self) -> int:
        """The highest resource version seen so far; 0 if there is none, or if versions are not numbers."""
        return self._newest

    def holds(self, key: Key, *, uid: str, version: str) -> bool:
        """Whether the store has just this version of just this job."""
        known = self._known.get(key)
        return known is not None and (known.identity.uid, known.identity.resource_version) == (uid, version)

    def put(self, record: JobRecord) -> News:
        """Take over what a watch says, unless the UID is over, or something newer is known."""
        if record.job.uid in self._over:
            return News()
        return self._take(record, believed_after=None)

    def merge(self, record: JobRecord, *, listed_at: int) -> News:
        """Take over an entry of a full list that began at the moment ``listed_at``."""
        over_since = self._over.get(record.job.uid)
        if over_since is not None:
            if over_since > listed_at:
                return News()  # it ended while the list was on its way
            del self._over[record.job.uid]
        return self._take(record, believed_after=listed_at)

    def answer(self, record: JobRecord) -> bool:
        """Take over the answer to a write of our own. Returns False if that job is not there any more."""
        known = self._known.get(record.job.key)
        if known is None or known.identity.uid != record.job.uid:
            return False
        self._take(record, believed_after=None)
        return True

    def remove(self, key: Key, *, uid: str) -> JobRecord | None:
        """The job with this UID is over, known or not. Returns what was known of it."""
        self._bury(uid)
        known = self._known.get(key)
        if known is None or known.identity.uid != uid:
            return None
        return self._known.pop(key).record

    def missing(self, namespace: str | None, present: set[str], *, listed_at: int) -> list[JobRecord]:
        """The jobs of a namespace (None: of all) that a full list, begun at that moment, should show and does not."""
        return [
            known.record
            for known in self._known.values()
            if namespace in (None, known.identity.namespace)
            and known.since <= listed_at
            and known.identity.uid not in present
        ]

    def turned_back(self, version: str) -> None:
        """The API server's history starts over at this version: higher ones that were seen mean nothing any more."""
        self._newest = _number(version)

    def _take(self, record: JobRecord, *, believed_after: int | None) -> News:
        """``believed_after``: what was known by then makes way even to an older version; None for never."""
        job = record.job
        known = self._known.get(job.key)
        if known is None:
            self._store(record)
            return News(changed=True)
        before = known.identity
        same = before.uid == job.uid
        if same and before.resource_version == job.resource_version:
            return News()
        outdated = believed_after is not None and known.at <= believed_after
        if not outdated and _is_older(job.resource_version, before.resource_version):
            if not same:
                self._bury(job.uid)
            return News()
        if same:
            self._store(record, since=known.since)
            return News(changed=True)
        self._bury(before.uid)
        self._store(record)
        return News(changed=True, over=known.record)

    def _store(self, record: JobRecord, *, since: int | None = None) -> None:
        self._moment += 1
        self._newest = max(self._newest, _number(record.job.resource_version))
        since = self._moment if since is None else since
        self._known[record.job.key] = _Known(record, since=since, at=self._moment)

    def _bury(self, uid: str) -> None:
        self._moment += 1
        self._over[uid] = self._moment
        self._over.move_to_end(uid)
        if len(self._over) > self._max_tombstones:
            self._over.popitem(last=False)


def _state(held: JobRecord | PackedJob) -> str:
    return held.state if isinstance(held, PackedJob) else held.job.status.state or ""


def _is_older(version: str, than: str) -> bool:
    """Resource versions of one resource can be compared as numbers (KEP-5504); others count as not older."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


# -- jobs at rest --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackedJob:
    """One finished job as compressed JSON, with what is asked of it without unpacking.

    Nothing is left to do for most jobs that a cluster holds. `bench/finished.py` measures what such a job takes. To
    read it again from the API server would cost a call for each late event.
    """

    namespace: str
    uid: str
    resource_version: str
    state: str
    packed: bytes

    @classmethod
    def of(cls, record: JobRecord) -> PackedJob:
        """Pack a record whose spec is kept as text, as :meth:`JobRecord.from_object` makes it."""
        job = record.job
        return cls(
            job.namespace, job.uid, job.resource_version, job.status.state or "", packed(_body(record), level=SMALLEST)
        )

    def record(self) -> JobRecord:
        """The job as it was packed."""
        return JobRecord.from_object(unpacked(self.packed))


def _body(record: JobRecord) -> JsonObject:
    job = record.job
    body: JsonObject = {"metadata": _metadata(job), "status": record.raw_status, SPEC_TEXT: record.spec}
    return {**body, SPEC_PROBLEM: job.problems[0]} if record.refused else body


def _metadata(job: Job) -> JsonObject:
    metadata: JsonObject = {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "resourceVersion": job.resource_version,
        "generation": job.generation,
        "labels": {**job.labels},
        "annotations": {
            **job.annotations,
            **({PREBUILT_WORKLOAD: job.prebuilt_workload} if job.prebuilt_workload else {}),
        },
        "creationTimestamp": job.created_at.isoformat() if job.created_at is not None else None,
    }
    return {**metadata, "deletionTimestamp": ""} if job.deleting else metadata
