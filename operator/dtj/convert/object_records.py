"""The objects next to the pods as the planner sees them: Services, claims, network policies and gangs."""

from __future__ import annotations

from dataclasses import replace

from dtj.api.kueue_annotations import ADMISSION_GATE
from dtj.api.names import Annotation
from dtj.core.observed import Child, GangApi, GangObject
from dtj.kube.gateway import Resource
from dtj.kube.records import GangRecord, Metadata, PlainRecord, ServiceRecord


def resource_of(api: GangApi) -> Resource:
    """The API as the Gateway knows it."""
    return Resource(api.api_version, api.kind, api.plural)


def service_from(record: ServiceRecord) -> Child:
    """A Service as the planner sees it."""
    child = _child(record.metadata, selector=record.spec.selector or {})
    return replace(child, config_map=record.metadata.annotation(Annotation.CLUSTER))


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
        topology_key=record.topology_key,
        queue=record.spec.queue_name,
        priority_class=record.workload_priority_class,
        gated_by=metadata.annotation(ADMISSION_GATE),
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
