"""Creating a job with its code: who owns the ConfigMap, and what stays if something is refused."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from builders import manifest
from dtj.api.json import JsonObject, dig, objects, text
from dtj.client.aio import AsyncClient
from dtj.client.checks import manifests_of
from dtj.client.code_manifest import with_code
from dtj.client.code_pack import CodePack
from dtj.kube.client import KubeGateway
from dtj.kube.errors import AlreadyExists, ApiError, Forbidden
from dtj.kube.gateway import CONFIG_MAPS, JOBS, Resource


class Server:
    """An API server that keeps jobs and ConfigMaps by name, and refuses some verbs on ConfigMaps."""

    def __init__(self, *refused: str) -> None:
        self.kept: dict[tuple[Resource, str], JsonObject] = {}
        self._refused = refused

    async def create(self, resource: Resource, *, body: JsonObject, dry_run: bool = False, **_: object) -> JsonObject:
        key = resource, text(dig(body, "metadata", "name"))
        self._check(resource, "dry run" if dry_run else "create")
        if key in self.kept:
            raise AlreadyExists(f"{key[1]} is there", status=409, reason="AlreadyExists")
        if dry_run:
            return body
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        self.kept[key] = {**body, "metadata": {**metadata, "uid": f"uid of {key[1]}"}}
        return self.kept[key]

    async def delete(self, resource: Resource, *, name: str, **_: object) -> None:
        self._check(resource, "delete")
        del self.kept[resource, name]

    def _check(self, resource: Resource, verb: str) -> None:
        if resource == CONFIG_MAPS and verb in self._refused:
            raise Forbidden(f"no {verb}", status=403, reason="Forbidden")


def created(server: Server, packed: CodePack, *, left: bool = False) -> JsonObject:
    """What the server has of the ConfigMap after its job was created; ``left`` says that an earlier job had it."""
    (found,) = manifests_of(manifest("a"))
    job = with_code(found, packed)
    assert job.config_map is not None
    key = CONFIG_MAPS, text(dig(job.config_map, "metadata", "name"))
    if left:
        server.kept[key] = {**job.config_map, "data": "left"}
    client = AsyncClient(cast("KubeGateway", cast("Any", server)), namespace="here")
    asyncio.run(client.create(job, namespace="here"))
    return server.kept[key]


@pytest.mark.parametrize("left", [False, True])
def test_the_config_map_is_owned_by_its_job_also_if_an_earlier_one_left_one(packed: CodePack, left: bool) -> None:
    config_map = created(Server(), packed, left=left)
    (owner,) = objects(dig(config_map, "metadata", "ownerReferences"))
    assert (owner["kind"], owner["uid"], "controller" in owner) == ("DistributedTrainingJob", "uid of a", False)
    assert "data" not in config_map


@pytest.mark.parametrize(("refused", "left"), [("dry run", False), ("create", False), ("delete", True)])
def test_a_job_whose_code_is_refused_does_not_stay(packed: CodePack, refused: str, left: bool) -> None:
    server = Server(refused)
    with pytest.raises(ApiError, match=f"no {refused}"):
        created(server, packed, left=left)
    assert (JOBS, "a") not in server.kept
