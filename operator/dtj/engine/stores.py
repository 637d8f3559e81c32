"""What the engine knows of the cluster, in memory: a job as it is read, and the objects around it, by job and owner.

Objects are converted once, when they arrive, to the flat values that the planner reads; building an
:class:`~dtj.core.observed.Observed` is a few look-ups. Nothing here calls the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from pydantic import JsonValue

from dtj.api.job import SPEC_PROBLEM, SPEC_TEXT, Job, Owned, parse_time, spec_of
from dtj.api.json import JsonObject, dig
from dtj.api.names import Annotation, Label
from dtj.core.blockers import WaitingContainer, blocker_of
from dtj.core.observed import Child, GangApi, GangObject, Phase, Pod, Termination
from dtj.kube.informer import Change
from dtj.kube.records import GangRecord, Key, Metadata, PlainRecord, PodRecord, Record, ServiceRecord


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, with its status as it is stored: what the next write is compared to.

    ``job`` lacks the parts of the spec that only planning needs, such as templates. They are kept as JSON text: decoded
    they take up to 25 times as much memory, and users decide how many there are. :meth:`whole` reads them.
    """

    job: Job
    raw_status: JsonObject
    spec: str | None = None
    """The whole spec as JSON text; None where ``job`` lacks nothing."""

    refused: bool = False
    """Whether the spec was too long to be read: ``job.problems`` says so."""

    @classmethod
    def from_object(cls, body: JsonObject) -> JobRecord:
        """Read a job from the API server's JSON, or from :func:`dtj.kube.job_body.decode_job`; never raises."""
        status, spec = dig(body, "status"), spec_of(body)
        job = Job.from_object({**body, SPEC_TEXT: None, "spec": _light(spec)})
        given = body.get(SPEC_TEXT)
        return cls(
            job=replace(job, raw_spec={}),
            raw_status=status if isinstance(status, dict) else {},
            spec=given if isinstance(given, str) else msgspec.json.encode(spec).decode(),
            refused=SPEC_PROBLEM in body,
        )

    def whole(self) -> Job:
        """The job with all of its spec, for one pass."""
        if self.spec is None:
            return self.job
        read = Job.from_object({SPEC_TEXT: self.spec})
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

_PHASES: Final = {str(phase): phase for phase in Phase}


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
    """``convert``, with the job that the object's labels name beside it."""

    def converted(record: R) -> Labelled[C]:
        return Labelled(job_of(record.metadata), convert(record))

    return converted


def pod_from(record: PodRecord) -> Pod:
    """A pod as the planner sees it."""
    metadata, status = record.metadata, record.status
    main = record.main_container
    phase = _PHASES.get(status.phase, Phase.PENDING)
    end = _termination(record, main, phase)
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        job_name=metadata.label(Label.JOB_NAME),
        role=metadata.label(Label.ROLE),
        index=_number(metadata.label(Label.INDEX), default=-1),
        attempt=_number(metadata.label(Label.ATTEMPT), default=1),
        phase=phase,
        ready=record.ready,
        terminating=metadata.deletion_timestamp is not None,
        deletion_requested_at=_deletion_requested_at(record, ended_at=end.finished_at if end else None),
        deletion_due=parse_time(metadata.deletion_timestamp),
        disrupted=record.has_condition("DisruptionTarget"),
        node=record.spec.node_name,
        ip=status.pod_ip,
        reason=status.reason,
        message=status.message,
        termination=end,
        sidecars=phase not in (Phase.SUCCEEDED, Phase.FAILED) and record.sidecars,
        probed=record.probed,
        blocker=blocker_of(
            unschedulable=record.unschedulable,
            waiting=(WaitingContainer(name, waiting.reason, waiting.message) for name, waiting in record.waiting),
            main_container=main,
        ),
        created_at=parse_time(metadata.creation_timestamp),
    )


def _termination(record: PodRecord, main: str, phase: Phase) -> Termination | None:
    """How the main container ended; where it never started, how the init container did that kept it from it."""
    end, init = record.termination(main), ""
    if end is None and phase is Phase.FAILED and record.failed_init_container is not None:
        init, end = record.failed_init_container
    if end is None:
        return None
    return Termination(
        exit_code=end.exit_code,
        signal=end.signal,
        reason=end.reason,
        message=end.message,
        started_at=parse_time(end.started_at),
        finished_at=parse_time(end.finished_at),
        init_container=init,
    )


_KUBELETS_MARGIN: Final = timedelta(seconds=60)
"""How long after the end of a pod's grace period its kubelet has deleted the object, as a rule."""


def _deletion_requested_at(record: PodRecord, *, ended_at: datetime | None) -> datetime | None:
    """A deletion's timestamp is when its grace period ends.

    A kubelet that has ended a pod deletes it again with a grace period of 0, which moves the timestamp: when it was
    told to go is not known any more, but it was before it ended. The API server also gives a pod that had ended
    before a grace period of 0; such a pod stays where it has a finalizer, and was not told to go while it ran.
    (kubernetes: staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go, pkg/registry/core/pod/strategy.go)
    """
    metadata = record.metadata
    ends = parse_time(metadata.deletion_timestamp)
    if ends is None:
        return None
    requested = ends - timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
    if metadata.deletion_grace_period_seconds != 0 or ended_at is None:
        return requested
    grace = timedelta(seconds=min(max(record.spec.termination_grace_period_seconds or 0, 0), _LONGEST_GRACE))
    return min(requested, ended_at) if requested - ended_at <= grace + _KUBELETS_MARGIN else requested


_LONGEST_GRACE: Final = 10**8
"""Seconds that a timedelta holds with ease."""


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


def network_policy_from(record: PlainRecord) -> Child:
    """A NetworkPolicy as the planner sees it."""
    return replace(_child(record.metadata, selector={}), digest=record.metadata.annotation(Annotation.POLICY_DIGEST))


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


def _number(label: str, *, default: int) -> int:
    return int(label) if label.isdecimal() else default
