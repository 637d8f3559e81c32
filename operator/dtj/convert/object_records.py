"""The objects next to the pods as the planner sees them: Services, claims, network policies and gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from dtj.api.json import JsonObject
from dtj.api.kueue_annotations import ADMISSION_GATE
from dtj.api.names import Annotation
from dtj.core.observed import Child, GangApi, GangObject
from dtj.kube.gateway import Resource
from dtj.kube.records import GangRecord, Metadata, PlainRecord, ServiceRecord

MOST_SELECTED: Final = 8
LONGEST_ANNOTATION: Final = 4096
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
    return replace(child, config_map=_annotation(record.metadata, Annotation.CLUSTER))


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
        size=_annotation(metadata, Annotation.GANG_SIZE),
        topology_key=record.topology_key,
        queue=record.spec.queue_name,
        priority_class=record.workload_priority_class,
        gated_by=_annotation(metadata, ADMISSION_GATE),
        active=record.spec.active is not False,
        terminating=metadata.deletion_timestamp is not None,
        status=_bounded(record.status or {}),
    )


def network_policy_from(record: PlainRecord) -> Child:
    """A NetworkPolicy as the planner sees it."""
    return replace(_child(record.metadata, selector={}), digest=_annotation(record.metadata, Annotation.POLICY_DIGEST))


def claim_from(record: PlainRecord) -> Child:
    """A PersistentVolumeClaim as the planner sees it."""
    return _child(record.metadata, selector={})


def _can_be_ours(selector: dict[str, str]) -> bool:
    return len(selector) <= MOST_SELECTED and all(len(text) <= 253 + 64 for pair in selector.items() for text in pair)


def _annotation(metadata: Metadata, name: str) -> str:
    return metadata.annotation(name)[:LONGEST_ANNOTATION]


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
