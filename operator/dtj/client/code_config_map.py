"""The ConfigMap with the code of a job, on a cluster: created before the job, and owned by it afterwards.

The garbage collector removes it with the job. Between the two it belongs to nobody: if the program is killed there,
a ConfigMap stays that no job uses, and the next submit of the same code takes it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.client.code_manifest import ARCHIVE
from dtj.client.code_pack import digest_of
from dtj.client.errors import CodeError
from dtj.kube.client import KubeGateway
from dtj.kube.errors import AlreadyExists, Conflict, NotFound
from dtj.kube.gateway import CONFIG_MAPS

_ATTEMPTS: Final = 5
"""How often a step is repeated because somebody else changed the ConfigMap in between: the garbage collector, which
removes that of a deleted job with the same name and code, or another submit."""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that was created with its code.

    ``config_map`` is the name of the ConfigMap; ``is_new`` whether it was created, too; ``warning`` why it will not be
    deleted with the job, and what to do, in one line; empty if it will be.
    """

    job: Job
    config_map: str
    is_new: bool
    warning: str = ""


@dataclass(frozen=True, slots=True)
class CodeConfigMap:
    """The ConfigMap of a job's code in a namespace."""

    gateway: KubeGateway
    namespace: str
    body: JsonObject

    @property
    def name(self) -> str:
        return text(dig(self.body, "metadata", "name"))

    async def provide(self) -> str:
        """Create it. Returns the UID, or an empty text if it is there already.

        Raises CodeError if another one has its name, and ApiError.
        """
        for _ in range(_ATTEMPTS):
            try:
                return text(dig(await self._create(self.body), "metadata", "uid"))
            except AlreadyExists:
                try:
                    self._check(await self._get())
                except NotFound:
                    continue
                return ""
        raise Conflict(f"ConfigMap {self.name}: other clients keep creating and deleting it")

    async def give_to(self, job: Job) -> None:
        """Have it deleted with the job; the jobs that own it already stay its owners. Raises ApiError."""
        owner: JsonObject = {
            name: value
            for name, value in job.owner_reference().items()
            if name
            not in ("controller", "blockOwnerDeletion")  # an object has one controller, and may have many owners
        }
        for _ in range(_ATTEMPTS):
            try:
                found = await self._get()
                owners = [*objects(dig(found, "metadata", "ownerReferences")), owner]
                version = text(dig(found, "metadata", "resourceVersion"))
                patch: JsonObject = {"metadata": {"resourceVersion": version, "ownerReferences": list(owners)}}
                await self.gateway.patch(CONFIG_MAPS, namespace=self.namespace, name=self.name, patch=patch)
            except NotFound:  # it went with the job that owned it before: the pods of this one wait for it
                await self.provide()
            except Conflict:
                continue
            else:
                return
        raise Conflict(f"ConfigMap {self.name}: other clients keep changing it")

    async def delete(self, uid: str) -> None:
        """Delete the one with this UID. Raises ApiError."""
        await self.gateway.delete(CONFIG_MAPS, namespace=self.namespace, name=self.name, uid=uid)

    async def _create(self, body: JsonObject) -> JsonObject:
        return await self.gateway.create(CONFIG_MAPS, namespace=self.namespace, body=body)

    async def _get(self) -> JsonObject:
        return await self.gateway.get(CONFIG_MAPS, namespace=self.namespace, name=self.name)

    def _check(self, found: JsonObject) -> None:
        """Raises CodeError unless ``found`` has the same files. Its bytes may differ: see :func:`digest_of`."""
        if _digest(found) != _digest(self.body) or found.get("immutable") is not True:
            raise CodeError(
                f"ConfigMap {self.name} in namespace {self.namespace} has other content than the code: delete it with "
                f"kubectl delete configmap -n {self.namespace} {self.name}"
            )


def _digest(config_map: JsonObject) -> str:
    try:
        return digest_of(base64.b64decode(text(dig(config_map, "binaryData", ARCHIVE)), validate=True))
    except binascii.Error:
        return ""
