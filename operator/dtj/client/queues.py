"""What Kueue has for the jobs of a namespace: its queues, their quota, and the jobs that wait. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Label
from dtj.client.partial_reads import Part, all_of, one, part
from dtj.core.observed import GangApi
from dtj.kube.client import KubeGateway
from dtj.kube.errors import NotFound
from dtj.kube.gateway import Resource
from dtj.kube.observed import resource_of

NAMESPACES: Final = Resource("v1", "Namespace", "namespaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """Empty in a cluster without Kueue. A ClusterQueue or flavor that was read and has no item does not exist."""

    local: Part[JsonObject] = field(default_factory=Part)
    cluster: Mapping[str, Part[JsonObject]] = field(default_factory=dict)
    flavors: Mapping[str, Part[JsonObject]] = field(default_factory=dict)
    workloads: Part[JsonObject] = field(default_factory=Part)
    """Those of our jobs."""

    namespace: Part[JsonObject] = field(default_factory=Part)


async def read_queues(gateway: KubeGateway, api: GangApi, namespace: str) -> Queues:
    """All of it that the user may read."""
    local, workloads, own = await asyncio.gather(
        part(all_of(gateway.list(Resource(api.api_version, "LocalQueue", "localqueues"), namespace=namespace))),
        part(all_of(gateway.list(resource_of(api), namespace=namespace, selector=Label.JOB_NAME))),
        part(one(gateway.get(NAMESPACES, namespace=None, name=namespace))),
    )
    behind = (text(dig(queue, "spec", "clusterQueue")) for queue in local.items)
    cluster = await _by_name(gateway, Resource(api.api_version, "ClusterQueue", "clusterqueues"), behind)
    used = (name for found in cluster.values() for queue in found.items for name in flavors_of(queue))
    flavors = await _by_name(gateway, Resource(api.api_version, "ResourceFlavor", "resourceflavors"), used)
    return Queues(local=local, cluster=cluster, flavors=flavors, workloads=workloads, namespace=own)


def flavors_of(queue: JsonObject) -> tuple[str, ...]:
    """The names of the ResourceFlavors of a ClusterQueue."""
    groups = objects(dig(queue, "spec", "resourceGroups"))
    return tuple(text(flavor.get("name")) for group in groups for flavor in objects(group.get("flavors")))


async def _by_name(gateway: KubeGateway, resource: Resource, wanted: Iterable[str]) -> dict[str, Part[JsonObject]]:
    names_once = tuple(dict.fromkeys(filter(None, wanted)))
    found = await asyncio.gather(*(part(_if_there(gateway, resource, name)) for name in names_once))
    return dict(zip(names_once, found, strict=True))


async def _if_there(gateway: KubeGateway, resource: Resource, name: str) -> tuple[JsonObject, ...]:
    try:
        return (await gateway.get(resource, namespace=None, name=name),)
    except NotFound:
        return ()
