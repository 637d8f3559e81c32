"""What the engine knows of the cluster, in memory: jobs, and the objects around them, indexed for planning.

Objects are converted once, when they arrive, to the flat values that the planner reads; building an
:class:`~dtj.core.observed.Observed` is a few look-ups. Nothing here calls the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

from dtj.api import names
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig
from dtj.api.names import Annotation, Label
from dtj.core.observed import Child, GangApi, GangObject, Phase, Pod, Termination
from dtj.engine.blockers import blocker_of
from dtj.kube.informer import Change
from dtj.kube.records import GangRecord, Key, Metadata, PlainRecord, PodRecord, Record, ServiceRecord


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, with its status as it is stored: what the next write is compared to."""

    job: Job
    raw_status: JsonObject

    @classmethod
    def from_object(cls, body: JsonObject) -> JobRecord:
        """Read a job from the API server's JSON; never raises."""
        status = dig(body, "status")
        return cls(Job.from_object(body), status if isinstance(status, dict) else {})


class JobStore:
    """All jobs by (namespace, name), each in its newest known version."""

    def __init__(self) -> None:
        self._records: dict[Key, JobRecord] = {}

    def get(self, key: Key) -> JobRecord | None:
        return self._records.get(key)

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: JobRecord) -> bool:
        """Take over ``record`` unless a newer version is known. Returns whether anything changed.

        A watch lags behind the answers to our own writes: what it delivers may be older than what we have.
        """
        known = self._records.get(record.job.key)
        if known is not None and known.job.uid == record.job.uid:
            if known.job.resource_version == record.job.resource_version:
                return False
            if _is_older(record.job.resource_version, known.job.resource_version):
                return False
        self._records[record.job.key] = record
        return True

    def remove(self, key: Key, *, uid: str) -> JobRecord | None:
        """Forget the job if it still is the one with this UID. Returns what was forgotten."""
        known = self._records.get(key)
        if known is None or known.job.uid != uid:
            return None
        return self._records.pop(key)


def _is_older(version: str, than: str) -> bool:
    """Resource versions of one object can be compared as numbers (KEP-5504); others count as not older."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class _Owned(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def owner_uid(self) -> str: ...


C = TypeVar("C", bound=_Owned)
R = TypeVar("R", bound=Record)
E = TypeVar("E", Key, str)

_PHASES: Final = {str(phase): phase for phase in Phase}


@dataclass(frozen=True, slots=True)
class Labelled(Generic[C]):
    """A child, with the job that its labels name."""

    job: Key
    value: C


class ChildStore(Generic[C]):
    """Children of one kind: by name, by the job that their labels name, and by owner UID.

    Labels may lie and owners may be others; who belongs to whom is the planner's business.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, C] = {}
        self._by_job: dict[Key, dict[Key, C]] = {}
        self._by_owner: dict[str, dict[Key, C]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> C | None:
        """The child of this namespace and name."""
        return self._by_key.get(key)

    def of(self, job: Job) -> dict[Key, C]:
        """The children that carry the job's name in their labels or its UID as owner."""
        return {**self._by_job.get(job.key, {}), **self._by_owner.get(job.uid, {})}

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
        self._by_owner.setdefault(child.value.owner_uid, {})[key] = child.value

    def _drop(self, child: Labelled[C]) -> None:
        key = (child.value.namespace, child.value.name)
        self._by_key.pop(key, None)
        _remove(self._by_job, child.job, key)
        _remove(self._by_owner, child.value.owner_uid, key)


def _remove(index: dict[E, dict[Key, C]], entry: E, key: Key) -> None:
    children = index.get(entry, {})
    children.pop(key, None)
    if not children:
        index.pop(entry, None)


def job_of(metadata: Metadata) -> Key:
    """The job that an object's labels name."""
    return metadata.namespace, metadata.label(Label.JOB_NAME)


def labelled(convert: Callable[[R], C]) -> Callable[[R], Labelled[C]]:
    """``convert``, with the job that the object's labels name beside it."""

    def converted(record: R) -> Labelled[C]:
        return Labelled(job_of(record.metadata), convert(record))

    return converted


def pod_from(record: PodRecord) -> Pod:
    """A pod as the planner sees it."""
    metadata, status = record.metadata, record.status
    main = _main_container(container.name for container in record.spec.containers)
    end = record.termination(main)
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        job_name=metadata.label(Label.JOB_NAME),
        role=metadata.label(Label.ROLE),
        index=_number(metadata.label(Label.INDEX), default=-1),
        attempt=_number(metadata.label(Label.ATTEMPT), default=1),
        phase=_PHASES.get(status.phase, Phase.PENDING),
        ready=record.ready,
        terminating=metadata.deletion_timestamp is not None,
        deletion_requested_at=_deletion_requested_at(metadata, ended_at=parse_time(end.finished_at) if end else None),
        deletion_due=parse_time(metadata.deletion_timestamp),
        disrupted=record.has_condition("DisruptionTarget"),
        node=record.spec.node_name,
        ip=status.pod_ip,
        reason=status.reason,
        message=status.message,
        termination=None
        if end is None
        else Termination(
            exit_code=end.exit_code,
            signal=end.signal,
            reason=end.reason,
            message=end.message,
            started_at=parse_time(end.started_at),
            finished_at=parse_time(end.finished_at),
        ),
        blocker=blocker_of(record, main_container=main),
        created_at=parse_time(metadata.creation_timestamp),
    )


def _deletion_requested_at(metadata: Metadata, *, ended_at: datetime | None) -> datetime | None:
    """A deletion's timestamp is when its grace period ends.

    A kubelet that has ended a pod deletes it again with a grace period of 0, which moves the timestamp: when it was
    told to go is not known any more, but it was before it ended. (A pod that had ended before vanishes at once.)
    """
    ends = parse_time(metadata.deletion_timestamp)
    if ends is None:
        return None
    requested = ends - timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
    if metadata.deletion_grace_period_seconds == 0 and ended_at is not None:
        return min(requested, ended_at)
    return requested


def service_from(record: ServiceRecord) -> Child:
    """A Service as the planner sees it."""
    return _child(record.metadata, selector=record.spec.selector or {})


def gang_from(api: GangApi, record: GangRecord) -> GangObject:
    """A PodGroup or Workload as the planner sees it."""
    metadata = record.metadata
    return GangObject(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        api=api,
        version=metadata.resource_version,
        size=metadata.annotation(Annotation.GANG_SIZE),
        active=record.spec.active is not False,
        terminating=metadata.deletion_timestamp is not None,
        status=record.status or {},
    )


def claim_from(record: PlainRecord) -> Child:
    """A PersistentVolumeClaim as the planner sees it."""
    return _child(record.metadata, selector={})


def _child(metadata: Metadata, *, selector: dict[str, str]) -> Child:
    return Child(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        selector=selector,
    )


def _main_container(containers: Iterable[str]) -> str:
    """The container whose end decides: the one named trainer, else the first."""
    found = list(containers)
    return names.MAIN_CONTAINER if names.MAIN_CONTAINER in found else next(iter(found), "")


def _number(label: str, *, default: int) -> int:
    return int(label) if label.isdecimal() else default
