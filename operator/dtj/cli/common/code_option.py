"""The option of commands that submit jobs: a directory whose files the pods find in their working directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.client import AsyncClient, Job
    from dtj.client.checks import Manifest
    from dtj.client.code_manifest import JobWithCode

F = TypeVar("F", bound=Callable[..., Any])

OPTION: Final = "--code"


def code_option(command: F) -> F:
    """Give a command ``--code DIR``, as ``code``."""
    return click.option(
        OPTION,
        "code",
        metavar="DIR",
        help="Send the files of this directory along, in a ConfigMap; the pods find them in their working directory. "
        "DIR/.dtjignore excludes files, as a .gitignore does.",
    )(command)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to be created: ``manifest`` as it is sent, and its code, if it has some."""

    manifest: Manifest
    with_code: JobWithCode | None = None

    async def create(self, client: AsyncClient, *, namespace: str) -> tuple[Job, str]:
        """The job, and a line about the ConfigMap of its code; empty without code. Raises ApiError and CodeError."""
        if self.with_code is None:
            return await client.create(self.manifest, namespace=namespace), ""
        submitted = await client.create_with_code(self.with_code, namespace=namespace)
        if submitted.warning:
            say(submitted.warning, err=True)
        return submitted.job, f"configmap/{submitted.config_map} {'created' if submitted.is_new else 'unchanged'}"


def submissions(manifests: Iterable[Manifest], code: str | None) -> tuple[Submission, ...]:
    """The jobs with the files of a directory, which is packed once; what was packed is printed on standard error.

    Without a directory, a job whose command names files of the current one gets a warning there: it is submitted, since
    its image may have them. Raises CodeError and InvalidManifest.
    """
    if code is None:
        found = tuple(map(Submission, manifests))
        for each in found:
            _warn_of_missing_files(each.manifest)
        return found
    from dtj.client import CodeError
    from dtj.client.code_manifest import with_code
    from dtj.client.code_pack import pack

    try:
        packed = pack(code)
    except CodeError as error:
        raise CodeError(f"{OPTION}: {error}") from error
    jobs = tuple(with_code(manifest, packed) for manifest in manifests)
    say(f"Code of {code}: {packed.summary}", err=True)
    return tuple(Submission(each.manifest, each) for each in jobs)


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
