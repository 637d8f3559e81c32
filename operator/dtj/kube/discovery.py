"""What an API server serves, by its lists of groups and of resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol, TypeVar

from dtj.api.json import JsonObject, objects, text
from dtj.kube.decoding import decode_object
from dtj.kube.errors import ApiError, NotFound, Unavailable
from dtj.kube.gateway import Discovery, Resource

T = TypeVar("T")


class Read(Protocol):
    """Reads a path of the server. Raises ApiError."""

    async def __call__(self, resource: Resource, path: str, decode: Callable[[bytes], T]) -> T:
        """What ``decode`` makes of the answer; the call is counted as one about the resource."""


async def discover(resources: Sequence[Resource], read: Read) -> Discovery:
    """Which of the resources, of groups with names, the server has: not those whose CRD is not installed (yet).

    The group must be listed too: kopf finds resources from the list of groups, which lags behind. That list is asked
    for once, and only the versions in it are asked for what they serve. Raises ApiError, also where a resource is
    missing while the server starts: it lists the APIs of CRDs late.
    """
    ready = await _is_ready(resources[0], read)
    listed = _versions(await read(resources[0], "/apis", decode_object))
    served = tuple([each for each in resources if each.api_version in listed and await _serves(each, read)])
    if len(served) < len(resources) and not ready:
        raise Unavailable("the API server is not ready (/readyz), and may not serve all of its APIs yet")
    groups = {resource.group for resource in resources}
    return Discovery(
        served=served, versions=tuple(sorted(version for version in listed if version.partition("/")[0] in groups))
    )


async def _is_ready(resource: Resource, read: Read) -> bool:
    """Whether the server says that it has started. Where it is not asked, as behind a proxy, it has."""
    try:
        await read(resource, "/readyz", bytes)
    except ApiError as error:
        if error.status == 0:
            raise
        return error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return True


async def _serves(resource: Resource, read: Read) -> bool:
    try:
        reply = await read(resource, resource.root, decode_object)
    except NotFound:
        return False
    return any(entry.get("name") == resource.plural for entry in objects(reply.get("resources")))


def _versions(groups: JsonObject) -> frozenset[str]:
    """The ``<group>/<version>`` of an APIGroupList."""
    listed = (version for group in objects(groups.get("groups")) for version in objects(group.get("versions")))
    return frozenset(text(version.get("groupVersion")) for version in listed)
