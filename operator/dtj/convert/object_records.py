"""The objects next to the pods as the planner sees them: Services, claims, network policies and gangs.

Others may have made them, as large as the API server takes them, so that of each is kept only what is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
from pydantic import JsonValue

from dtj.api.json import JsonObject, dig, objects
from dtj.api.kueue import ADMISSION_GATE
from dtj.api.names import Annotation
from dtj.core.messages import MAX_NOTE, cut
from dtj.core.observed import Child, GangApi, GangObject
from dtj.kube.gateway import Resource
from dtj.kube.records import GangRecord, Metadata, PlainRecord, ServiceRecord

MOST_SELECTED: Final = 8
LARGEST_STATUS: Final = 512 * 1024
"""Bounds of what is kept of an object whose owner may be anybody: more than we ever write, or Kueue does. Any tenant
can create objects of 1.5 MiB with our label, and all that is kept of them is the operator's memory."""

_NOT_OURS: Final = {"": ""}
"""In place of a selector that cannot be ours. It is equal to none."""


def resource_of(api: GangApi) -> Resource:
    """The API as the Gateway knows it."""
    return Resource(api.api_version, api.kind, api.plural)


def service_from(record: ServiceRecord) -> Child:
    """A Service as the planner sees it."""
    selector = record.spec.selector or {}
    child = _child(record.metadata, selector=selector if _can_be_ours(selector) else _NOT_OURS)
    return replace(child, config_map=_note(record.metadata, Annotation.CLUSTER))


def _note(metadata: Metadata, annotation: str) -> str:
    """An annotation, as far as it is kept."""
    return cut(metadata.annotation(annotation), MAX_NOTE)


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
        size=_note(metadata, Annotation.GANG_SIZE),
        topology_key=record.topology_key,
        queue=record.spec.queue_name,
        priority_class=record.workload_priority_class,
        gated_by=_note(metadata, ADMISSION_GATE),
        active=record.spec.active is not False,
        terminating=metadata.deletion_timestamp is not None,
        status=_bounded(_status(record.status or {})),
    )


_STATUS: Final = (
    "conditions",
    "reclaimablePods",
    "accumulatedPastExecutionTimeSeconds",
    "accumulatedPastExexcutionTimeSeconds",
)
"""What is read of a status besides what :func:`_status` takes out of it. Conditions are written back as they are."""


def _status(status: JsonObject) -> JsonObject:
    """What is read of the status of a PodGroup or Workload. The nodes of each pod, which Kueue notes, may be many."""
    kept = _picked(status, _STATUS)
    admission = status.get("admission")
    if isinstance(admission, dict):
        assignments = [_assignment(each) for each in objects(admission.get("podSetAssignments"))]
        kept["admission"] = {**_picked(admission, ("clusterQueue",)), "podSetAssignments": [*assignments]}
    checks = [_picked(check, ("podSetUpdates",)) for check in objects(status.get("admissionChecks"))]
    return {**kept, "admissionChecks": [*checks]} if any(checks) else kept


def _assignment(assignment: JsonObject) -> JsonObject:
    given: JsonValue = dig(assignment, "topologyAssignment")
    kept = _picked(assignment, ("name", "flavors", "count"))
    return kept if given is None else {**kept, "topologyAssignment": {}}


def _picked(fields: JsonObject, wanted: tuple[str, ...]) -> JsonObject:
    return {name: fields[name] for name in wanted if name in fields}


def network_policy_from(record: PlainRecord) -> Child:
    """A NetworkPolicy as the planner sees it."""
    return replace(_child(record.metadata, selector={}), digest=_note(record.metadata, Annotation.POLICY_DIGEST))


def claim_from(record: PlainRecord) -> Child:
    """A PersistentVolumeClaim as the planner sees it."""
    return _child(record.metadata, selector={})


def _can_be_ours(selector: dict[str, str]) -> bool:
    return len(selector) <= MOST_SELECTED and all(len(text) <= 253 + 64 for pair in selector.items() for text in pair)


def _bounded(status: JsonObject) -> JsonObject:
    return status if len(msgspec.json.encode(status)) <= LARGEST_STATUS else {}


def _child(metadata: Metadata, *, selector: dict[str, str]) -> Child:
    return Child(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        selector=selector,
    )
