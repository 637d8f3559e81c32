"""A job that a command submits, with or without code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dtj.cli.common.connection import commands_in, format_api_error
from dtj.cli.common.options import CODE
from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.api.json import JsonObject
    from dtj.client import ApiError, AsyncClient, Job
    from dtj.client.checks import Manifest
    from dtj.client.code_manifest import JobWithCode


class Submission(Protocol):
    """A job to be created."""

    @property
    def manifest(self) -> Manifest:
        """The job as it is sent."""
        ...

    @property
    def objects(self) -> list[JsonObject]:
        """What ``kubectl apply`` needs: the job, after what it needs before it."""
        ...

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        """The job, and a line about its code, which is empty without code. Raises ApiError and CodeError."""
        ...


@dataclass(frozen=True, slots=True)
class WithoutCode:
    """A job whose image has all that it needs."""

    manifest: Manifest

    @property
    def objects(self) -> list[JsonObject]:
        return [self.manifest.body]

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        return await client.create(self.manifest, namespace=namespace), ""


@dataclass(frozen=True, slots=True)
class WithConfigMap:
    """A job whose code is in a ConfigMap, which is created before it."""

    job: JobWithCode

    @property
    def manifest(self) -> Manifest:
        return self.job.manifest

    @property
    def objects(self) -> list[JsonObject]:
        return [self.job.config_map, self.manifest.body]

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        submitted = await client.create_with_code(self.job, namespace=namespace)
        if submitted.warning:
            _warn(submitted.warning)
        return submitted.job, f"configmap/{submitted.config_map} {'created' if submitted.is_new else 'unchanged'}"


def submissions(manifests: Iterable[Manifest], code: str | None) -> Sequence[Submission]:
    """The jobs with the files of the directory ``code``, which is packed once; what was packed is printed on standard
    error.

    Without one, a job whose command names files of the current directory gets a warning there: it is submitted, since
    its image may have them. Raises CodeError and InvalidManifest.
    """
    if code is None:
        found = tuple(map(WithoutCode, manifests))
        for each in found:
            _warn_of_missing_files(each.manifest)
        return found
    from dtj.client import CodeError
    from dtj.client.code_manifest import with_code
    from dtj.client.code_pack import pack

    try:
        packed = pack(code)
    except CodeError as error:
        raise CodeError(f"{CODE}: {error}") from error
    jobs = tuple(WithConfigMap(with_code(manifest, packed)) for manifest in manifests)
    _warn(f"Code of {code}: {packed.summary}")
    return jobs


async def create_or_report(submission: Submission, client: AsyncClient, *, namespace: str) -> tuple[Job, str] | None:
    """What :meth:`Submission.create` returns; None if the cluster refuses the job, which is printed on standard error.
    Raises Unavailable and CodeError."""
    from dtj.client import ApiError, Unavailable

    try:
        return await submission.create(client, namespace=namespace)
    except Unavailable:
        raise
    except ApiError as error:
        _warn(_refusal(submission.manifest, error, commands_in(namespace, usual=client.namespace)))
        return None


def _refusal(manifest: Manifest, error: ApiError, again: Callable[..., str]) -> str:
    """Why the cluster did not take a manifest, in one line."""
    from dtj.client import AlreadyExists

    what = f"{manifest.document.title}: {format_api_error(error)}"
    if isinstance(error, AlreadyExists):
        name = manifest.job.name
        return f"{what}: choose another metadata.name, or delete that job first ({again('delete', name)})"
    return what


def _warn(line: str) -> None:
    say(line, err=True)


def _warn_of_missing_files(manifest: Manifest) -> None:
    from dtj.cli.common.cluster_needs import cluster_needs
    from dtj.cli.common.formatting import listed
    from dtj.core.manifests.pod import first_pods
    from dtj.core.platform import Platform

    pods = first_pods(manifest.job, manifest.spec, platform=Platform())
    files = cluster_needs(pods, Path.cwd()).files
    if files:
        _warn(
            f"{manifest.document.title}: the command names {listed(files)} of this directory: add {CODE} . to send "
            "the directory along, unless the image has it"
        )
