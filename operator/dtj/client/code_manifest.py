"""A job together with its code: the manifest, changed so that the pods find the code, and the ConfigMap that holds it.

The code is a compressed tar in a ConfigMap. An init container unpacks it into an emptyDir, which is the working
directory of the container that trains. Mounting the files of a ConfigMap directly needs
no init container, but then the directory is read-only, which breaks any script that writes ``logs/`` or
``model.keras``; a ConfigMap holds about a quarter of the code, and neither links nor modes; and ``kubectl apply`` takes
less of it, since it keeps a copy in an annotation. The init container has the image, the user and at most the resources
of the one that trains, so that pod security, quotas and the quality of service of the pod are as before. All of it
stands in the manifest: the operator knows nothing of code.

On a cluster the ConfigMap is created before the job, and owned by it afterwards, so that the garbage collector removes
it with the job. Between the two it belongs to nobody: if the program is killed there, a ConfigMap stays that no job
uses, and the next submit of the same code takes it.
"""

from __future__ import annotations

import base64
import binascii
import copy
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dtj.api import names, quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, extend, object_at, objects, text
from dtj.api.names import Label
from dtj.client.checks import Manifest, check_documents, sound
from dtj.client.code_pack import CodePack, digest_of
from dtj.client.errors import CodeError, InvalidManifest
from dtj.client.pod_programs import UNPACK_CODE
from dtj.core.pod_state import main_container
from dtj.kube.errors import AlreadyExists, Conflict, NotFound
from dtj.kube.gateway import CONFIG_MAPS

if TYPE_CHECKING:
    from dtj.kube.client import KubeGateway  # which takes long to import, and `dtj submit -o yaml` asks nobody

WORKING_DIR: Final = "/code"
"""Where the code is if the manifest sets no ``workingDir``."""

ARCHIVE: Final = "code.tar.gz"
"""The key in the ConfigMap."""

MANAGER: Final = "dtj"

UNPACK: Final = "dtj-unpack-code"
VOLUME: Final = "dtj-code"
ARCHIVE_VOLUME: Final = "dtj-code-archive"

_ARCHIVE_MOUNT: Final = "/dtj/code-archive"
_REMEDY: Final = "delete the job, and submit it again"
"""Where the ConfigMap has gone or was damaged."""

_DIGITS: Final = 10
"""Digits of the digest in the name of the ConfigMap; all of them are in its annotation."""


@dataclass(frozen=True, slots=True)
class JobWithCode:
    """A job whose pods unpack the code that ``config_map`` holds; both are complete."""

    manifest: Manifest
    config_map: JsonObject


def with_code(manifest: Manifest, pack: CodePack) -> JobWithCode:
    """The job with this code. Raises InvalidManifest if the code has no place in it."""
    config_map = _config_map(manifest.job.name, pack)
    body = copy.deepcopy(manifest.document.body)
    archive = _Archive(text(dig(config_map, "metadata", "name")), pack.digest)
    problems = tuple(_add_to_templates(object_at(body, "spec"), archive))
    if problems:
        raise InvalidManifest(tuple(f"{manifest.document.title}: {problem}" for problem in problems))
    (changed,) = sound(check_documents([replace(manifest.document, body=body)], None))
    return JobWithCode(changed, config_map)


@dataclass(frozen=True, slots=True)
class _Archive:
    """What the init container unpacks: the name of the ConfigMap that holds it, and its digest."""

    config_map: str
    digest: str


def _config_map(job: str, pack: CodePack) -> JsonObject:
    """Its name carries the digest: another submit with other code makes another ConfigMap, and changes no running
    job."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{job}-code-{pack.digest[:_DIGITS]}",
            "labels": {Label.APP_PART_OF: job, Label.APP_MANAGED_BY: MANAGER, Label.JOB_NAME: job},
            "annotations": {f"{names.GROUP}/code-digest": f"sha256:{pack.digest}"},
        },
        "immutable": True,
        "binaryData": {ARCHIVE: base64.b64encode(pack.archive).decode()},
    }


def _add_to_templates(spec: JsonObject, archive: _Archive) -> Iterator[str]:
    """Change each pod template of a job; what keeps it from that, as ``field: message``."""
    shared = [role for role in _roles(spec).values() if not isinstance(role.get("template"), dict)]
    if shared:
        yield from _add(object_at(spec, "template"), "spec.template", shared, archive)
    for name, role in _roles(spec).items():
        template = role.get("template")
        if isinstance(template, dict):
            yield from _add(template, f"spec.replicaSpecs.{name}.template", [role], archive)


def _roles(spec: JsonObject) -> dict[str, JsonObject]:
    roles = spec.get("replicaSpecs")
    return {name: role for name, role in roles.items() if isinstance(role, dict)} if isinstance(roles, dict) else {}


def _add(template: JsonObject, path: str, roles: Iterable[JsonObject], archive: _Archive) -> Iterator[str]:
    """Change the template of these roles."""
    pod_spec = object_at(template, "spec")
    main = main_container(pod_spec)
    container = f"{path}.spec.containers[{max(0, _place(pod_spec, main))}]"
    directory = posixpath.normpath(text(main.get("workingDir")) or WORKING_DIR)
    problems = tuple(_problems(pod_spec, main, directory))
    if problems:
        yield from (f"{container}.{problem}" for problem in problems)
        return
    main["workingDir"] = directory
    mount: JsonObject = {"name": VOLUME, "mountPath": directory}
    extend(main, "volumeMounts", (mount,))
    source: JsonObject = {"configMap": {"name": archive.config_map}}
    extend(pod_spec, "volumes", ({"name": ARCHIVE_VOLUME, **source}, {"name": VOLUME, "emptyDir": {}}))
    arguments = [posixpath.join(_ARCHIVE_MOUNT, ARCHIVE), directory, archive.digest, _REMEDY]
    unpack = _unpack_container(main, ["python3", "-c", UNPACK_CODE, *arguments])
    of_archive: JsonObject = {"name": ARCHIVE_VOLUME, "mountPath": _ARCHIVE_MOUNT, "readOnly": True}
    unpack["volumeMounts"] = [dict(mount), of_archive]
    unpack["terminationMessagePolicy"] = "FallbackToLogsOnError"
    if resources := _least_resources(main, roles):
        unpack["resources"] = resources
    pod_spec["initContainers"] = [unpack, *objects(pod_spec.get("initContainers"))]


def _place(pod_spec: JsonObject, main: JsonObject) -> int:
    return next((place for place, each in enumerate(objects(pod_spec.get("containers"))) if each is main), -1)


def _problems(pod_spec: JsonObject, main: JsonObject, directory: str) -> Iterator[str]:
    """Why code has no place in a pod, as ``field of the main container: message``."""
    if not text(main.get("image")):
        yield "image: Required value: with --code an init container of the same image unpacks the code"
    if not directory.startswith("/") or directory == "/":
        yield f'workingDir: "{directory}" cannot hold the code: leave it out, or name a directory such as {WORKING_DIR}'
    if any(volume.get("name") in (VOLUME, ARCHIVE_VOLUME) for volume in objects(pod_spec.get("volumes"))):
        yield f"volumeMounts: the manifest has its code already (volume {VOLUME}): leave out --code"
        return
    for index, mount in enumerate(objects(main.get("volumeMounts"))):
        if posixpath.normpath(text(mount.get("mountPath"))) == directory:
            name = text(mount.get("name"))
            yield (
                f"volumeMounts[{index}].mountPath: {directory} is where the code of --code goes: remove this mount "
                f"and volume {name}, or set another workingDir"
            )


def _unpack_container(main: JsonObject, command: list[str]) -> JsonObject:
    """A container with the image and the user of the one that trains."""
    container: JsonObject = {"name": UNPACK, "image": main["image"], "command": [*command]}
    for name in ("imagePullPolicy", "securityContext"):
        if name in main:
            container[name] = copy.deepcopy(main[name])
    return container


def _least_resources(main: JsonObject, roles: Iterable[JsonObject]) -> JsonObject:
    """CPU and memory that the main container has in each of these roles, which may replace them.

    A pod requests the most of what its init containers and its other containers request, so this raises the request of
    none. Without limits, a quota that limits containers would refuse the pod.
    """
    given = [own if isinstance(own := role.get("resources"), dict) else main.get("resources") for role in roles]
    least: JsonObject = {}
    for kind in ("limits", "requests"):
        for name in ("cpu", "memory"):
            sizes = {
                size: str(amount)
                for resources in given
                if (size := quantities.parse(amount := dig(resources, kind, name))) is not None
            }
            if sizes:
                object_at(least, kind)[name] = sizes[min(sizes)]
    _bound_requests(least)
    return least


def _bound_requests(resources: JsonObject) -> None:
    """A request may not be above the limit, and they may come from two roles."""
    requests = resources.get("requests")
    for name, amount in list(requests.items()) if isinstance(requests, dict) else ():
        limit = dig(resources, "limits", name)
        if limit is not None and (quantities.parse(amount) or 0) > (quantities.parse(limit) or 0):
            object_at(resources, "requests")[name] = limit


# -- on a cluster -------------------------------------------------------------------------------------------------

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
