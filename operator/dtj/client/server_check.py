"""What the API server has against a job and the objects that the operator would make of it, by one dry run of them.

It knows what no schema says: a request above its limit, a mount without a volume, a policy of the namespace. Its
refusals name fields of pods; they are told in terms of the manifest where a field of the pod is one of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pydantic import JsonValue

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at, text
from dtj.api.names import Label
from dtj.api.spec import JobSpec
from dtj.client.checks import Manifest
from dtj.core.manifests.metadata import claim
from dtj.core.manifests.pod import first_pods
from dtj.core.platform import Platform
from dtj.core.pod_state import main_container
from dtj.core.policies.service import service
from dtj.core.policies.tensorboard import tensorboard_pod
from dtj.kube.gateway import CLAIMS, JOBS, PODS, SERVICES, Gateway, Resource, Verdict, dry_run

_UID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID that the API server will give to the job."""

_IMAGE: Final = "trainer"
"""Stands for the image that an operator can have for containers without one."""

_Step: TypeAlias = tuple[str, str]
"""The name of a field, or what stands in brackets: the index of an item, or a key."""

_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """``problems`` are mistakes of the manifest. ``refusals`` are quotas and policies, which may have changed when the
    operator asks. ``unchecked`` is what this person has no right to ask. A line each."""

    problems: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


async def check_on_server(gateway: Gateway, manifest: Manifest, *, namespace: str) -> ServerCheck:
    """Ask for the job, then for the first pod of each role and what else there is one of. Raises ApiError."""

    async def ask(resource: Resource, body: JsonObject) -> tuple[Resource, JsonObject, Verdict]:
        return resource, body, await dry_run(gateway, resource, namespace=namespace, body=body)

    async def ask_all(platform: Platform) -> list[tuple[Resource, JsonObject, Verdict]]:
        wanted = _objects(job, manifest.spec, platform)
        return await asyncio.gather(*(ask(resource, body) for resource, body in wanted))

    job = replace(manifest.job, namespace=namespace, uid=_UID)
    platform = Platform(trainer_image=_IMAGE)
    of_job = await ask(JOBS, manifest.body)  # a cluster without the CRD is asked for nothing else
    of_objects = await ask_all(platform)
    if any(verdict.wants_restricted for _, _, verdict in of_objects):
        of_objects = await ask_all(replace(platform, restricted=True))
    problems: list[str] = []
    refusals: list[str] = []
    unchecked: list[str] = []
    for resource, body, verdict in (of_job, *of_objects):
        problems += (_in_manifest(error, resource, body, manifest.body) for error in verdict.errors)
        if "cannot create resource" in verdict.forbidden:
            unchecked.append(verdict.forbidden)
        elif verdict.wants_restricted:
            problems.append(f"{_owner(body)}: {verdict.forbidden}")
        elif verdict.forbidden:
            refusals.append(f"{_owner(body)}: {verdict.forbidden}")
    return ServerCheck(*(tuple(dict.fromkeys(lines)) for lines in (problems, refusals, unchecked)))


def _objects(job: Job, spec: JobSpec, platform: Platform) -> Iterator[tuple[Resource, JsonObject]]:
    for pod in first_pods(job, spec, platform=platform):
        yield PODS, _without_owner(pod)
    if spec.tensor_board is not None:
        yield PODS, _without_owner(tensorboard_pod(job, spec, platform))
    yield SERVICES, _without_owner(service(job, spec, attempt=1))
    if (wanted := claim(job, spec)) is not None:
        yield CLAIMS, _without_owner(wanted)


def _without_owner(body: JsonObject) -> JsonObject:
    """Some clusters ask for more rights of who names an owner than a person who submits needs."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return {**body, "metadata": {key: value for key, value in metadata.items() if key != "ownerReferences"}}


# -- fields ----------------------------------------------------------------------------------------------------


def _owner(body: JsonObject) -> str:
    role = text(dig(body, "metadata", "labels", Label.ROLE))
    return f"pods of {role}" if role else text(body.get("kind"))


def _in_manifest(error: str, resource: Resource, body: JsonObject, manifest: JsonObject) -> str:
    """An error with the field of the manifest that it is about, or with the object that has the field."""
    if resource == JOBS:
        return error
    field, colon, words = error.partition(": ")
    if resource == CLAIMS:
        return f"spec.checkpoint.claimTemplate.{error}"
    role = text(dig(body, "metadata", "labels", Label.ROLE))
    place = _field(field, body, manifest, role) if colon and resource == PODS else ""
    return f"{place}: {words}" if place else f"{_owner(body)}: {error}"


def _field(field: str, pod: JsonObject, manifest: JsonObject, role: str) -> str:
    """The field of the manifest that became ``field`` of a pod; empty if none did."""
    steps = _STEP.findall(field)
    spec = dig(manifest, "spec")
    if role == names.TENSORBOARD:
        return _same("spec.tensorBoard", dig(spec, "tensorBoard"), dig(pod, "spec", "containers", 0), steps[3:])
    of_role, path = dig(spec, "replicaSpecs", role), f"spec.replicaSpecs[{role}]"
    item = _item(pod, steps)
    if dig(item, "name") == names.CHECKPOINT_VOLUME:
        return _same("spec.checkpoint.volume", dig(spec, "checkpoint", "volume"), item, steps[3:])
    is_main = item is main_container(object_at(pod, "spec"))
    ours, rest = (item, steps[3:]) if is_main else (dig(pod, "spec"), steps[1:])
    if rest and dig(of_role, rest[0][0]) is not None and (found := _same(path, of_role, ours, rest)):
        return found
    own = dig(of_role, "template")
    if own is not None:
        return _same(f"{path}.template", own, pod, steps)
    return _same("spec.template", dig(spec, "template"), pod, steps)


def _item(pod: JsonObject, steps: Sequence[_Step]) -> JsonValue:
    """The container or the volume that the steps lead through; None if they lead elsewhere."""
    match steps:
        case [("spec", ""), ("containers" | "volumes" as kind, ""), ("", index), *_] if index.isdecimal():
            return dig(pod, "spec", kind, int(index))
    return None


def _same(path: str, theirs: JsonValue, ours: JsonValue, steps: Sequence[_Step]) -> str:
    """``path`` with the steps in what a person wrote that lead to the same as ``steps`` in a pod; empty if none do."""
    for name, key in steps:
        if isinstance(ours, list) and key.isdecimal():
            ours = dig(ours, int(key))
            index = _index(theirs, ours, int(key))
            if index is None:
                return ""
            path, theirs = f"{path}[{index}]", dig(theirs, index)
            continue
        if dig(theirs, name or key) is None and dig(ours, name or key) is not None:
            return ""
        path += f".{name}" if name else f"[{key}]"
        theirs, ours = dig(theirs, name or key), dig(ours, name or key)
    return path


def _index(theirs: JsonValue, item: JsonValue, index: int) -> int | None:
    """The place of an item in a list of the manifest: most are where they were, and have names."""
    found = theirs if isinstance(theirs, list) else []
    wanted = dig(item, "name")
    same = [
        place
        for place, each in enumerate(found)
        if each == item or (wanted is not None and dig(each, "name") == wanted)
    ]
    return index if index in same else next(iter(same), None)
