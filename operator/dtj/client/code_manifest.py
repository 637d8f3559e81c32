"""A job together with its code: the manifest, changed so that the pods find the code, and the ConfigMap that holds it.

The code is a compressed tar in a ConfigMap. An init container unpacks it into an emptyDir, which is the working
directory of the container that trains. Mounting the files of a ConfigMap directly needs
no init container, but then the directory is read-only, which breaks any script that writes ``logs/`` or
``model.keras``; a ConfigMap holds about a quarter of the code, and neither links nor modes; and ``kubectl apply`` takes
less of it, since it keeps a copy in an annotation. The init container has the image, the user and at most the resources
of the one that trains, so that pod security, quotas and the quality of service of the pod are as before. All of it
stands in the manifest: the operator knows nothing of code.

On a cluster the ConfigMap is created right after the job, which owns it, so that the garbage collector removes it with
the job; pods wait for it. If the program is killed between the two, the status of the job names what is missing.
"""

from __future__ import annotations

import base64
import copy
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import resources
from typing import Final

from dtj.api import names, quantities
from dtj.api.form import DTJ
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, extend, fields_of, name_of, object_at, objects, picked, text
from dtj.api.names import Label
from dtj.api.rule import roles_of
from dtj.client.checks import Manifest, check_documents, sound
from dtj.client.code_pack import CodePack
from dtj.client.errors import InvalidManifest

WORKING_DIR: Final = "/code"
"""Where the code is if the manifest sets no ``workingDir``."""

ARCHIVE: Final = "code.tar.gz"
"""The key in the ConfigMap."""

MANAGER: Final = "dtj"

UNPACK_CODE: Final = (resources.files("dtj.client") / "unpack_code.py").read_text(encoding="utf-8")
"""The program of the init container. Arguments: archive, directory, digest of the archive, and what to do if the
archive is not there."""

UNPACK: Final = "dtj-unpack-code"
VOLUME: Final = "dtj-code"
ARCHIVE_VOLUME: Final = "dtj-code-archive"

_ARCHIVE_MOUNT: Final = "/dtj/code-archive"
_REMEDY: Final = "delete the job, and submit it again"
"""Where the ConfigMap has gone or was damaged."""

_DIGITS: Final = 10
"""Digits of the digest in the name of the ConfigMap; all of them are in its annotation."""


def with_code(manifest: Manifest, pack: CodePack) -> Manifest:
    """The job with this code. Raises InvalidManifest if the code has no place in it."""
    config_map = _config_map(manifest.job.name, pack)
    body = copy.deepcopy(manifest.document.body)
    name = name_of(config_map)
    problems = tuple(
        problem
        for path, template, roles in _templates(object_at(body, "spec"))
        for problem in _add(template, path, roles, name, pack.digest)
    )
    if problems:
        raise InvalidManifest(tuple(f"{manifest.document.title}: {problem}" for problem in problems))
    (changed,) = sound(check_documents([replace(manifest.document, body=body)], None))
    return replace(changed, config_map=config_map)


def owned_by(config_map: JsonObject, job: Job) -> JsonObject:
    """The ConfigMap as it is created on a cluster: deleted with the job."""
    owner = job.owner_reference()
    del owner["controller"], owner["blockOwnerDeletion"]  # which ask for more rights, and are for controllers
    return {**config_map, "metadata": {**object_at(config_map, "metadata"), "ownerReferences": [owner]}}


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


def _templates(spec: JsonObject) -> Iterator[tuple[str, JsonObject, list[JsonObject]]]:
    """Each pod template of a job: its path, itself, and the roles that have it."""
    roles = {name: role for name, role in roles_of(spec).items() if isinstance(role, dict)}
    shared = [role for role in roles.values() if not isinstance(role.get("template"), dict)]
    if shared:
        yield "spec.template", object_at(spec, "template"), shared
    for name, role in roles.items():
        if isinstance(template := role.get("template"), dict):
            yield f"spec.replicaSpecs.{name}.template", template, [role]


def _add(template: JsonObject, path: str, roles: Iterable[JsonObject], config_map: str, digest: str) -> Iterator[str]:
    """Change the template of these roles; what keeps it from that, as ``field: message``."""
    pod_spec = object_at(template, "spec")
    main = DTJ.main_container(pod_spec)
    directory = posixpath.normpath(text(main.get("workingDir")) or WORKING_DIR)
    problems = tuple(_problems(pod_spec, main, directory))
    if problems:
        place = next((n for n, each in enumerate(objects(pod_spec.get("containers"))) if each is main), 0)
        yield from (f"{path}.spec.containers[{place}].{problem}" for problem in problems)
        return
    main["workingDir"] = directory
    unpack: JsonObject = {
        "name": UNPACK,
        "image": main["image"],
        "command": ["python3", "-c", UNPACK_CODE, posixpath.join(_ARCHIVE_MOUNT, ARCHIVE), directory, digest, _REMEDY],
        **copy.deepcopy(picked(main, ("imagePullPolicy", "securityContext"))),
        "volumeMounts": [
            {"name": VOLUME, "mountPath": directory},
            {"name": ARCHIVE_VOLUME, "mountPath": _ARCHIVE_MOUNT, "readOnly": True},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if resources := _least_resources(main, roles):
        unpack["resources"] = resources
    extend(main, "volumeMounts", ({"name": VOLUME, "mountPath": directory},))
    source: JsonObject = {"configMap": {"name": config_map}}
    extend(pod_spec, "volumes", ({"name": ARCHIVE_VOLUME, **source}, {"name": VOLUME, "emptyDir": {}}))
    pod_spec["initContainers"] = [unpack, *objects(pod_spec.get("initContainers"))]


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
    for name, amount in list(fields_of(resources.get("requests")).items()):
        limit = dig(resources, "limits", name)
        if limit is not None and (quantities.parse(amount) or 0) > (quantities.parse(limit) or 0):
            object_at(resources, "requests")[name] = limit
