"""The option of commands that submit jobs: a directory whose files the pods find in their working directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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

    Raises CodeError and InvalidManifest.
    """
    if code is None:
        return tuple(map(Submission, manifests))
    from dtj.client import CodeError
    from dtj.client.code_manifest import with_code
    from dtj.client.code_pack import pack

    try:
        packed = pack(code)
    except CodeError as error:
        raise CodeError(f"{OPTION}: {error}") from error
    found = tuple(with_code(manifest, packed) for manifest in manifests)
    say(f"Code of {code}: {packed.summary}", err=True)
    return tuple(Submission(each.manifest, each) for each in found)
