"""What the API server has against a job and the objects that the operator would make of it, by one dry run of them.

It knows what no schema says: a request above its limit, a mount without a volume, a policy of the namespace. Its
refusals name fields of pods; they are told as fields of the template where the pod has them from there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.api.spec import JobSpec
from dtj.client.checks import Manifest
from dtj.core.manifests.metadata import claim
from dtj.core.manifests.pod import first_pods
from dtj.core.platform import PLATFORM_OF_TFJOBS, Platform
from dtj.core.policies.job_service import service
from dtj.core.policies.tensorboard import tensorboard_pod
from dtj.kube.gateway import CLAIMS, PODS, SERVICES, Gateway, Resource, Verdict, dry_run, jobs_of

_UID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID that the API server will give to the job."""

_IMAGE: Final = "trainer"
"""Stands for the image that an operator can have for containers without one."""

_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""The name of a field, or what stands in brackets: the index of an item, or a key."""


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
    if job.form.chart_section:
        platform = PLATFORM_OF_TFJOBS
    of_job = await ask(jobs_of(job.form), manifest.body)  # a cluster without the CRD is asked for nothing else
    of_objects = await ask_all(platform)
    if any(verdict.wants_restricted for _, _, verdict in of_objects):
        of_objects = await ask_all(replace(platform, restricted=True))
    problems: list[str] = []
    refusals: list[str] = []
    unchecked: list[str] = []
    for resource, body, verdict in (of_job, *of_objects):
        problems += (_in_manifest(error, resource, body, manifest) for error in verdict.errors)
        if "cannot create resource" in verdict.forbidden:
            unchecked.append(verdict.forbidden)
        elif verdict.wants_restricted:
            problems.append(f"{_owner(body, job)}: {verdict.forbidden}")
        elif verdict.forbidden:
            refusals.append(f"{_owner(body, job)}: {verdict.forbidden}")
    return ServerCheck(*(tuple(dict.fromkeys(lines)) for lines in (problems, refusals, unchecked)))


def _objects(job: Job, spec: JobSpec, platform: Platform) -> Iterator[tuple[Resource, JsonObject]]:
    for pod in first_pods(job, spec, platform=platform):
        yield PODS, _without_owner(pod)
    if spec.tensor_board is not None:
        yield PODS, _without_owner(tensorboard_pod(job, spec, platform))
    if not job.form.replica_services:
        yield SERVICES, _without_owner(service(job, spec, attempt=1))
    if (wanted := claim(job, spec)) is not None:
        yield CLAIMS, _without_owner(wanted)


def _without_owner(body: JsonObject) -> JsonObject:
    """Some clusters ask for more rights of who names an owner than a person who submits needs."""
    metadata = fields_of(body["metadata"])
    return {**body, "metadata": {key: value for key, value in metadata.items() if key != "ownerReferences"}}


# -- fields ----------------------------------------------------------------------------------------------------


def _owner(body: JsonObject, job: Job) -> str:
    role = text(dig(body, "metadata", "labels", job.form.role_label))
    return f"pods of {role}" if role else text(body.get("kind"))


def _in_manifest(error: str, resource: Resource, body: JsonObject, manifest: Manifest) -> str:
    """An error with the field of the manifest that it is about, or with the object that has the field."""
    job = manifest.job
    if resource == jobs_of(job.form):
        return error
    if resource == CLAIMS:
        return f"spec.checkpoint.claimTemplate.{error}"
    role = text(dig(body, "metadata", "labels", job.form.role_label))
    roles = fields_of(dig(manifest.body, "spec", job.form.roles_field))
    key = next((key for key in roles if key.lower() == role), role)
    own = f"spec.{job.form.roles_field}[{key}].template", dig(roles, key, "template")
    path, template = own if own[1] is not None else ("spec.template", dig(manifest.body, "spec", "template"))
    steps = [name or (int(key) if key.isdecimal() else key) for name, key in _STEP.findall(error.partition(": ")[0])]
    is_same = dig(template, *steps) == dig(body, *steps)  # else a role or the operator has set it, or moved it
    return f"{path}.{error}" if steps and is_same else f"{_owner(body, job)}: {error}"
