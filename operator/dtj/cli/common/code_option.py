"""The options of commands that submit jobs: a directory whose files the pods find in their working directory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.api.json import JsonObject
    from dtj.client import AsyncClient, Job
    from dtj.client.checks import Manifest
    from dtj.client.code_manifest import JobWithCode, JobWithCodeOnClaim
    from dtj.client.code_pack import CodePack

OPTION: Final = "--code"
CLAIM_OPTION: Final = "--code-claim"


@dataclass(frozen=True, slots=True)
class CodeSource:
    """A directory, and the claim that brings its files; without one, a ConfigMap does."""

    directory: str
    claim: str | None = None


def code_option(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--code DIR`` and ``--code-claim``, together as ``code``: a CodeSource or None."""

    @click.option(
        OPTION,
        "code",
        metavar="DIR",
        help="Send the files of this directory along, in a ConfigMap; the pods find them in their working directory. "
        "DIR/.dtjignore excludes files, as a .gitignore does.",
    )
    @click.option(
        CLAIM_OPTION,
        "code_claim",
        metavar="CLAIM",
        help="Copy the files of --code to this PersistentVolumeClaim, for more than a ConfigMap holds: NAME or "
        "NAME/DIRECTORY.",
    )
    @functools.wraps(command)
    def coded(*args: Any, code: str | None, code_claim: str | None, **kwargs: Any) -> int:
        if code is None and code_claim is not None:
            raise click.UsageError(f"{CLAIM_OPTION} needs {OPTION}: name the directory that holds the code")
        return command(*args, code=CodeSource(code, code_claim) if code is not None else None, **kwargs)

    return coded


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to be created: ``manifest`` as it is sent, and its code, if it has some."""

    manifest: Manifest
    with_code: JobWithCode | JobWithCodeOnClaim | None = None

    @property
    def config_map(self) -> JsonObject | None:
        """That of its code, if it has one."""
        from dtj.client.code_manifest import JobWithCode

        return self.with_code.config_map if isinstance(self.with_code, JobWithCode) else None

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        """The job, and a line about its code, which is empty without code. Raises ApiError and CodeError."""
        from dtj.client.code_manifest import JobWithCodeOnClaim

        if self.with_code is None:
            return await client.create(self.manifest, namespace=namespace), ""
        if isinstance(self.with_code, JobWithCodeOnClaim):
            with _naming(CLAIM_OPTION):
                job, copied = await client.create_with_code_on_claim(self.with_code, namespace=namespace, report=_warn)
            return job, self._copied(copied)
        submitted = await client.create_with_code(self.with_code, namespace=namespace)
        if submitted.warning:
            _warn(submitted.warning)
        return submitted.job, f"configmap/{submitted.config_map} {'created' if submitted.is_new else 'unchanged'}"

    async def copy(self, client: AsyncClient, *, namespace: str) -> str:
        """Copy the code to its claim, and create no job; a line about it. Raises ApiError and CodeError."""
        from dtj.client.code_copy import CodeCopy
        from dtj.client.code_manifest import JobWithCodeOnClaim

        assert isinstance(self.with_code, JobWithCodeOnClaim), "the command checks its options"
        with _naming(CLAIM_OPTION):
            copied = await CodeCopy(client.gateway, self.with_code, namespace=namespace, report=_warn).run()
        return self._copied(copied)

    def _copied(self, copied: bool) -> str:
        from dtj.client.code_manifest import JobWithCodeOnClaim

        assert isinstance(self.with_code, JobWithCodeOnClaim)
        path = self.with_code.claim.path_of(self.with_code.pack.digest)
        return f"{path} {'copied to' if copied else 'is already on'} persistentvolumeclaim/{self.with_code.claim.name}"


def submissions(manifests: Iterable[Manifest], code: CodeSource | None) -> tuple[Submission, ...]:
    """The jobs with the files of a directory, which is packed once; what was packed is printed on standard error.

    Without a directory, a job whose command names files of the current one gets a warning there: it is submitted, since
    its image may have them. Raises CodeError and InvalidManifest.
    """
    if code is None:
        found = tuple(map(Submission, manifests))
        for each in found:
            _warn_of_missing_files(each.manifest)
        return found
    packed, jobs = _with_code(tuple(manifests), code)
    say(f"Code of {code.directory}: {packed.summary}", err=True)
    return tuple(Submission(each.manifest, each) for each in jobs)


def _with_code(
    manifests: tuple[Manifest, ...], code: CodeSource
) -> tuple[CodePack, tuple[JobWithCode | JobWithCodeOnClaim, ...]]:
    from dtj.client.code_claim import CodeClaim
    from dtj.client.code_manifest import with_code, with_code_on_claim
    from dtj.client.code_pack import CLAIM_LIMIT, pack

    if code.claim is None:
        with _naming(OPTION):
            packed = pack(code.directory)
        return packed, tuple(with_code(manifest, packed) for manifest in manifests)
    with _naming(CLAIM_OPTION):
        claim = CodeClaim.parse(code.claim)
    with _naming(OPTION):
        packed = pack(code.directory, CLAIM_LIMIT)
    return packed, tuple(with_code_on_claim(manifest, packed, claim) for manifest in manifests)


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
        say(
            f"{manifest.document.title}: the command names {listed(files)} of this directory: add {OPTION} . to send "
            "the directory along, unless the image has it",
            err=True,
        )
