"""The objects of the API server as the planner sees them. The operator, its clients and reports read a pod here alone.

Others may have made these objects, as large as the API server takes them, so that of each is kept only what is read.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from pydantic import JsonValue

from dtj.api.form import DTJ, Form
from dtj.api.job import MAX_SPEC_VALUES, parse_time, values_in
from dtj.api.json import JsonObject, dig, objects, picked, text, whole_number
from dtj.api.kueue import ADMISSION_GATE
from dtj.api.lenient import MAX_INTEGER
from dtj.api.names import TENSORBOARD, Annotation, Label
from dtj.core.actions import Kind
from dtj.core.messages import MAX_MESSAGE, MAX_NOTE, cut
from dtj.core.observed import Child, GangApi, GangObject, Phase, Pod, Termination
from dtj.core.pod_failure import last_words
from dtj.kube.blockers import blocker_of
from dtj.kube.gateway import CLAIMS, CONFIG_MAPS, NETWORK_POLICIES, SERVICES, Resource
from dtj.kube.records import GangRecord, Metadata, PlainRecord, PodRecord, ServiceRecord, Terminated

LONGEST: Final = {
    "message": MAX_MESSAGE,
    "world": 40_000,  # of 10,000 workers of which every third is lost, it has 33,500
    **dict.fromkeys(("config_map", "digest", "size", "pods", "gated_by"), MAX_NOTE),
}
LONGEST_NAME: Final = 253
MOST_SELECTED: Final = 8
LARGEST_STATUS: Final = 512 * 1024
"""Bounds of what is kept of an object whose owner may be anybody: more than we ever write, or Kueue does. Any tenant
can create objects of 1.5 MiB with our label, and all that is kept of them is the operator's memory.

``LONGEST`` has the most characters of a text, by the field that keeps it; of all others, such as names, UIDs and
reasons, ``LONGEST_NAME`` are kept. A longer one is cut, and is then equal to none that Kubernetes makes.
"""

_NOT_OURS: Final = {"": ""}
"""In place of a selector that cannot be ours. It is equal to none."""


_RESOURCES: Final = {
    Kind.SERVICE: SERVICES,
    Kind.CONFIG_MAP: CONFIG_MAPS,
    Kind.NETWORK_POLICY: NETWORK_POLICIES,
    Kind.CLAIM: CLAIMS,
}


def resource_of(kind: Kind | GangApi) -> Resource:
    """A kind as the Gateway knows it."""
    return Resource(kind.api_version, kind.kind, kind.plural) if isinstance(kind, GangApi) else _RESOURCES[kind]


def service_from(record: ServiceRecord, form: Form = DTJ) -> Child:
    """A Service as the planner sees it."""
    selector = record.spec.selector or {}
    child = _child(record.metadata, form, selector=selector if _can_be_ours(selector) else _NOT_OURS)
    return _kept(replace(child, config_map=_note(record.metadata, Annotation.CLUSTER)))


T = TypeVar("T", Pod, Child, GangObject, Termination)

_TEXTS: Final[dict[object, tuple[tuple[str, int], ...]]] = {
    kind: tuple((each.name, LONGEST.get(each.name, LONGEST_NAME)) for each in fields(kind) if each.type == "str")
    for kind in (Pod, Child, GangObject, Termination)
}
"""The fields that hold texts, and how much is kept of each."""


def _kept(found: T) -> T:
    """An object whose texts are no longer than what is kept of them. All that others wrote goes through this."""
    texts = ((name, getattr(found, name), limit) for name, limit in _TEXTS[type(found)])
    long: dict[str, Any] = {name: cut(text, limit) for name, text, limit in texts if len(text) > limit}
    return replace(found, **long) if long else found


def _note(metadata: Metadata, annotation: str) -> str:
    """An annotation, as far as it is kept."""
    return cut(metadata.annotation(annotation), MAX_NOTE)


def gang_from(api: GangApi, record: GangRecord, form: Form = DTJ) -> GangObject:
    """A PodGroup or Workload as the planner sees it."""
    metadata = record.metadata
    found = GangObject(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        api=api,
        version=metadata.resource_version,
        size=_note(metadata, Annotation.GANG_SIZE),
        pods=_note(metadata, Annotation.GANG_PODS),
        queue=record.spec.queue_name,
        priority_class=record.workload_priority_class,
        gated_by=_note(metadata, ADMISSION_GATE),
        last_checkpoint=_note(metadata, Annotation.LAST_CHECKPOINT),
        max_seconds=record.spec.maximum_execution_time_seconds,
        active=record.spec.active is not False,
        terminating=metadata.deletion_timestamp is not None,
        status=_bounded(_status(record.status or {})),
        job_name=metadata.label(form.job_label),
        owners=_other_owners(metadata),
    )
    return _kept(found)


def _other_owners(metadata: Metadata) -> tuple[JsonObject, ...] | None:
    """The references to owners that do not control the object; None if they are too long to be kept."""
    references = [msgspec.to_builtins(each) for each in metadata.owner_references or () if not each.controller]
    if len(msgspec.json.encode(references)) > MAX_MESSAGE:
        return None
    return tuple({key: value for key, value in each.items() if value is not None} for each in references)


_STATUS: Final = ("conditions", "reclaimablePods", "accumulatedPastExecutionTimeSeconds")
"""What is read of a status besides what :func:`_status` takes out of it. Conditions are written back as they are."""


def _status(status: JsonObject) -> JsonObject:
    """What is read of the status of a PodGroup or Workload. The nodes of each pod, which Kueue notes, may be many."""
    kept = picked(status, _STATUS)
    admission = status.get("admission")
    if isinstance(admission, dict):
        assignments = [_assignment(each) for each in objects(admission.get("podSetAssignments"))]
        kept["admission"] = {**picked(admission, ("clusterQueue",)), "podSetAssignments": [*assignments]}
    checks = [_check(check) for check in objects(status.get("admissionChecks"))]
    return {**kept, "admissionChecks": [*checks]} if any(checks) else kept


def _assignment(assignment: JsonObject) -> JsonObject:
    given: JsonValue = dig(assignment, "topologyAssignment")
    kept = picked(assignment, ("name", "flavors", "count"))
    return kept if given is None else {**kept, "topologyAssignment": {}}


def _check(check: JsonObject) -> JsonObject:
    updates = picked(check, ("podSetUpdates",))
    if check.get("state") == "Ready":
        return updates
    return {**updates, **picked(check, ("name", "state")), "message": cut(text(check.get("message")), MAX_NOTE)}


def network_policy_from(record: PlainRecord) -> Child:
    """A NetworkPolicy as the planner sees it."""
    return _kept(replace(_child(record.metadata, selector={}), digest=_note(record.metadata, Annotation.POLICY_DIGEST)))


def claim_from(record: PlainRecord) -> Child:
    """A PersistentVolumeClaim as the planner sees it."""
    return _kept(_child(record.metadata, selector={}))


def _can_be_ours(selector: dict[str, str]) -> bool:
    return len(selector) <= MOST_SELECTED and all(len(text) <= 253 + 64 for pair in selector.items() for text in pair)


def _bounded(status: JsonObject) -> JsonObject:
    written = msgspec.json.encode(status)
    return status if len(written) <= LARGEST_STATUS and values_in(written) <= MAX_SPEC_VALUES else {}


def _child(metadata: Metadata, form: Form = DTJ, *, selector: dict[str, str]) -> Child:
    return Child(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        selector=selector,
        job_name=metadata.label(form.job_label),
    )


_PHASES: Final = {str(phase): phase for phase in Phase}


def pod_from(record: PodRecord, form: Form = DTJ) -> Pod:
    """A pod as the planner sees it."""
    metadata, status = record.metadata, record.status
    main = record.main_container
    phase = _PHASES.get(status.phase, Phase.PENDING)
    tensorboard = metadata.label(form.role_label) == TENSORBOARD
    end = None if tensorboard and _starts_again(record, phase) else _termination(record, main, phase)
    found = Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        job_name=metadata.label(form.job_label),
        role=form.role_of(metadata.label(form.role_label)),
        index=_number(metadata.label(form.index_label), default=-1),
        attempt=_number(metadata.label(Label.ATTEMPT), default=1),
        phase=phase,
        # To Kubeflow's operator a pod that runs is ready. A kubelet says of each that runs whether it is.
        ready=record.ready or (form.running_is_ready and phase is Phase.RUNNING and not record.tells_ready),
        silent=record.silent,
        terminating=metadata.deletion_timestamp is not None,
        deletion_requested_at=_deletion_requested_at(record, ended_at=end.finished_at if end else None),
        deletion_due=parse_time(metadata.deletion_timestamp),
        disrupted=record.has_condition("DisruptionTarget"),
        node=record.spec.node_name,
        ip=status.pod_ip,
        reason=status.reason,
        message=status.message,
        termination=end,
        last_end=_as_termination(record.previous_end(main)) if end is None and not tensorboard else None,
        sidecars=phase not in (Phase.SUCCEEDED, Phase.FAILED) and record.sidecars,
        probed=record.probed,
        blocker=blocker_of(record),
        created_at=parse_time(metadata.creation_timestamp),
        world=metadata.annotation(Annotation.WORLD),
    )
    return _kept(found)


def _termination(record: PodRecord, main: str, phase: Phase) -> Termination | None:
    """How the main container ended, or the init container that kept it from starting. A kubelet may be about to start
    it again, as it does in pods of Kubeflow's operator: the run has ended all the same."""
    end, init = record.termination(main), ""
    if end is None and any(name == main for name, _ in record.waiting):
        end = record.previous_end(main)
    if end is None and phase is Phase.FAILED and record.failed_init_container is not None:
        init, end = record.failed_init_container
    return _as_termination(end, init)


def _as_termination(end: Terminated | None, init: str = "") -> Termination | None:
    if end is None:
        return None
    words, final = last_words(end.message, end.exit_code)
    found = Termination(
        exit_code=end.exit_code,
        signal=end.signal,
        reason=end.reason,
        message=words,
        started_at=parse_time(end.started_at),
        finished_at=parse_time(end.finished_at),
        init_container=init,
        final=final and not init,
    )
    return _kept(found)


def _starts_again(record: PodRecord, phase: Phase) -> bool:
    """Whether the kubelet is about to start a container of TensorBoard that has ended: it is left to its kubelet."""
    return phase not in (Phase.SUCCEEDED, Phase.FAILED) and record.metadata.deletion_timestamp is None


_KUBELETS_MARGIN: Final = timedelta(seconds=60)
"""How long after the end of a pod's grace period its kubelet has deleted the object, as a rule."""


def _deletion_requested_at(record: PodRecord, *, ended_at: datetime | None) -> datetime | None:
    """A deletion's timestamp is when its grace period ends.

    A kubelet that has ended a pod deletes it again with a grace period of 0, which moves the timestamp: when it was
    asked to stop is not known any more, but it was before it ended. The API server also gives a pod that had ended
    before a grace period of 0; such a pod stays where it has a finalizer, and was not asked to stop while it ran.
    (kubernetes: staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go, pkg/registry/core/pod/strategy.go)
    """
    metadata = record.metadata
    ends = parse_time(metadata.deletion_timestamp)
    if ends is None:
        return None
    requested = ends - _grace(metadata.deletion_grace_period_seconds)
    if metadata.deletion_grace_period_seconds != 0 or ended_at is None:
        return requested
    grace = _grace(record.spec.termination_grace_period_seconds)
    return min(requested, ended_at) if requested - ended_at <= grace + _KUBELETS_MARGIN else requested


_LONGEST_GRACE: Final = 10**8
"""Three years, in seconds. The API server stores any grace period up to 2^63 seconds."""


def _grace(seconds: int | None) -> timedelta:
    return timedelta(seconds=min(max(seconds or 0, 0), _LONGEST_GRACE))


def _number(label: str, *, default: int) -> int:
    number = whole_number(label, most=MAX_INTEGER)
    return default if number is None else number
