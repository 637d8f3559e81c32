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
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Final

import msgspec

from dtj.api.job import Job, form_of_kind
from dtj.api.json import fields_of
from dtj.api.names import Condition
from dtj.kube.decoding import reader
from dtj.kube.job_body import JobObject
from dtj.kube.records import Key, version_number


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is kept: compressed JSON, and what is asked of it between two passes.

    There are thousands of jobs, and users decide how large they are: decoded, a job may take 25 times as much memory as
    its JSON is long. :meth:`job` decodes it, for a pass or an answer. `bench/finished.py` measures what a job takes.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    attempt: int
    deleting: bool
    state: str
    """The state of its status, empty if it has none yet."""

    terminal: bool
    running: bool
    """Whether all of its pods run: they have something to tell."""

    stalled: bool
    packed: bytes

    @property
    def key(self) -> Key:
        """(namespace, name): the work queue's key."""
        return self.namespace, self.name

    @property
    def identity(self) -> tuple[str, str]:
        """(namespace, UID): what distinguishes this job from its predecessors of the same name."""
        return self.namespace, self.uid

    @classmethod
    def of(cls, job: JobObject) -> JobRecord:
        """Keep a job. Raises Unreadable if its status is none."""
        metadata = job.metadata
        status = form_of_kind(job.api_version, job.kind).record(fields_of(_decode(job.status)))
        alive = metadata.deletion_timestamp is None and not status.terminal
        return cls(
            namespace=intern(metadata.namespace),  # a text that many jobs share
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            attempt=max(status.attempt, 1),
            deleting=metadata.deletion_timestamp is not None,
            state=intern(status.state or ""),
            terminal=status.terminal,
            running=alive and status.is_true(Condition.PODS_READY),
            stalled=not status.terminal and status.is_true(Condition.PROGRESS_STALLED),
            packed=_packed(msgspec.json.encode(job)),
        )

    def job(self) -> Job:
        """The job with all that is read of it."""
        return Job.from_object(fields_of(_decode(_unpacked(self.packed))))


_decode: Final = reader(object)

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


def _packed(raw: bytes) -> bytes:
    # The fastest level: a better one saves 30 bytes of a usual job, and takes 20 ms for a large one.
    compressor = zlib.compressobj(zlib.Z_BEST_SPEED, zdict=_USUAL_WORDS)
    return compressor.compress(raw) + compressor.flush()


def _unpacked(packed: bytes) -> bytes:
    return zlib.decompressobj(zdict=_USUAL_WORDS).decompress(packed)


MAX_TOMBSTONES: Final = 10_000
"""UIDs that are remembered as over. More would have to end between an event of a UID and its deletion."""


@dataclass(frozen=True, slots=True)
class News:
    """What a piece of news changed: whether the store has another record now, and which job that ended by it."""

    changed: bool = False
    over: JobRecord | None = None


@dataclass(slots=True)
class _Known:
    record: JobRecord
    since: int
    """The moment at which this UID became known."""

    at: int
    """The moment of the latest news of it."""


class JobStore:
    """All jobs by (namespace, name)."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._over: OrderedDict[str, int] = OrderedDict()
        """UIDs that are over, and since which moment; the oldest first."""

        self._moment = 0
        self._newest = 0

    def get(self, key: Key) -> JobRecord | None:
        known = self._known.get(key)
        return known.record if known is not None else None

    def __iter__(self) -> Iterator[JobRecord]:
        return iter([known.record for known in self._known.values()])

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
        return known is not None and (known.record.uid, known.record.resource_version) == (uid, version)

    def put(self, record: JobRecord) -> News:
        """Take over what a watch says, unless the UID is over, or something newer is known."""
        if record.uid in self._over:
            return News()
        return self._take(record, believed_after=None)

    def merge(self, record: JobRecord, *, listed_at: int) -> News:
        """Take over an entry of a full list that began at the moment ``listed_at``."""
        over_since = self._over.get(record.uid)
        if over_since is not None:
            if over_since > listed_at:
                return News()  # it ended while the list was on its way
            del self._over[record.uid]
        return self._take(record, believed_after=listed_at)

    def answer(self, record: JobRecord) -> bool:
        """Take over the answer to a write of our own. Returns False if that job is not there any more."""
        known = self._known.get(record.key)
        if known is None or known.record.uid != record.uid:
            return False
        self._take(record, believed_after=None)
        return True

    def remove(self, key: Key, *, uid: str) -> JobRecord | None:
        """The job with this UID is over, known or not. Returns what was known of it."""
        self._bury(uid)
        known = self._known.get(key)
        if known is None or known.record.uid != uid:
            return None
        return self._known.pop(key).record

    def missing(self, namespace: str | None, present: set[str], *, listed_at: int) -> list[JobRecord]:
        """The jobs of a namespace (None: of all) that a full list, begun at that moment, should show and does not."""
        return [
            known.record
            for known in self._known.values()
            if namespace in (None, known.record.namespace)
            and known.since <= listed_at
            and known.record.uid not in present
        ]

    def turned_back(self, version: str) -> None:
        """The API server's history starts over at this version: higher ones that were seen mean nothing any more."""
        self._newest = _number(version)

    def _take(self, record: JobRecord, *, believed_after: int | None) -> News:
        """``believed_after``: what was known by then makes way even to an older version; None for never."""
        known = self._known.get(record.key)
        same = known is not None and known.record.uid == record.uid
        if known is not None:
            if same and known.record.resource_version == record.resource_version:
                return News()
            outdated = believed_after is not None and known.at <= believed_after
            if not outdated and _is_older(record.resource_version, known.record.resource_version):
                if not same:
                    self._bury(record.uid)
                return News()
            if not same:
                self._bury(known.record.uid)
        self._moment += 1
        self._newest = max(self._newest, _number(record.resource_version))
        since = known.since if known is not None and same else self._moment
        self._known[record.key] = _Known(record, since=since, at=self._moment)
        return News(changed=True, over=known.record if known is not None and not same else None)

    def _bury(self, uid: str) -> None:
        self._moment += 1
        self._over[uid] = self._moment
        self._over.move_to_end(uid)
        if len(self._over) > MAX_TOMBSTONES:
            self._over.popitem(last=False)


def _is_older(version: str, than: str) -> bool:
    """Resource versions of one resource can be compared as numbers (KEP-5504); others count as not older."""
    one, other = version_number(version), version_number(than)
    return one is not None and other is not None and one < other


def _number(version: str) -> int:
    return version_number(version) or 0
