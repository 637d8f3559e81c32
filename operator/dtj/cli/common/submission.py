"""A job that a command submits, with or without code. One class for each place of the code, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dtj.cli.common.connection import format_api_error
from dtj.cli.common.next_commands import commands_in
from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.api.json import JsonObject
    from dtj.client import ApiError, AsyncClient, Job
    from dtj.client.checks import Manifest
    from dtj.client.code_manifest import JobWithCode, JobWithCodeOnClaim
    from dtj.client.code_pack import CodePack, PackLimit

OPTION: Final = "--code"
CLAIM_OPTION: Final = "--code-claim"


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


class CodeSource(Protocol):
    """A directory with code, and where pods get its files from."""

    @property
    def directory(self) -> str: ...

    def submissions(self, manifests: Iterable[Manifest]) -> Sequence[Submission]:
        """The jobs with this code, which is packed once; what was packed is printed on standard error. Raises CodeError
        and InvalidManifest."""
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


@dataclass(frozen=True, slots=True)
class WithClaim:
    """A job whose code is copied to a claim before the job is created."""

    job: JobWithCodeOnClaim

    @property
    def manifest(self) -> Manifest:
        return self.job.manifest

    @property
    def objects(self) -> list[JsonObject]:
        return [self.manifest.body]

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        with _naming(CLAIM_OPTION):
            job, copied = await client.create_with_code_on_claim(self.job, namespace=namespace, report=_warn)
        return job, self._line(copied)

    async def copy(self, client: AsyncClient, *, namespace: str) -> str:
        """Copy the code to its claim, and create no job; a line about it. Raises ApiError and CodeError."""
        from dtj.client.code_copy import CodeCopy

        with _naming(CLAIM_OPTION):
            copied = await CodeCopy(client.gateway, self.job, namespace=namespace, report=_warn).run()
        return self._line(copied)

    def _line(self, copied: bool) -> str:
        path = self.job.claim.path_of(self.job.pack.digest)
        return f"{path} {'copied to' if copied else 'is already on'} persistentvolumeclaim/{self.job.claim.name}"


@dataclass(frozen=True, slots=True)
class CodeInConfigMap:
    """A directory whose files a ConfigMap brings."""

    directory: str

    def submissions(self, manifests: Iterable[Manifest]) -> tuple[WithConfigMap, ...]:
        from dtj.client.code_manifest import with_code
        from dtj.client.code_pack import CONFIG_MAP_LIMIT

        packed = _packed(self.directory, CONFIG_MAP_LIMIT)
        jobs = tuple(WithConfigMap(with_code(manifest, packed)) for manifest in manifests)
        _report_pack(self.directory, packed)
        return jobs


@dataclass(frozen=True, slots=True)
class CodeOnClaim:
    """A directory whose files are copied to a claim; ``claim`` is NAME or NAME/DIRECTORY."""

    directory: str
    claim: str

    def submissions(self, manifests: Iterable[Manifest]) -> tuple[WithClaim, ...]:
        from dtj.client.code_claim import CodeClaim
        from dtj.client.code_manifest import with_code_on_claim
        from dtj.client.code_pack import CLAIM_LIMIT

        with _naming(CLAIM_OPTION):
            claim = CodeClaim.parse(self.claim)
        packed = _packed(self.directory, CLAIM_LIMIT)
        jobs = tuple(WithClaim(with_code_on_claim(manifest, packed, claim)) for manifest in manifests)
        _report_pack(self.directory, packed)
        return jobs


def submissions(manifests: Iterable[Manifest], code: CodeSource | None) -> Sequence[Submission]:
    """The jobs with the files of a directory.

    Without one, a job whose command names files of the current directory gets a warning on standard error: it is
    submitted, since its image may have them. Raises CodeError and InvalidManifest.
    """
    if code is not None:
        return code.submissions(manifests)
    found = tuple(map(WithoutCode, manifests))
    for each in found:
        _warn_of_missing_files(each.manifest)
    return found


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


def _packed(directory: str, limit: PackLimit) -> CodePack:
    from dtj.client.code_pack import pack

    with _naming(OPTION):
        return pack(directory, limit)


def _report_pack(directory: str, packed: CodePack) -> None:
    _warn(f"Code of {directory}: {packed.summary}")


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Put the option before what a CodeError says."""
    from dtj.client import CodeError

    try:
        yield
    except CodeError as error:
        raise CodeError(f"{option}: {error}") from error


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
            f"{manifest.document.title}: the command names {listed(files)} of this directory: add {OPTION} . to send "
            "the directory along, unless the image has it"
        )
