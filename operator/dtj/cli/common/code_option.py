"""The options of commands that submit jobs: a directory whose files the pods find in their working directory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from dtj.cli.common.submission import CLAIM_OPTION, OPTION, CodeInConfigMap, CodeOnClaim, CodeSource


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
        return command(*args, code=_source(code, code_claim), **kwargs)

    return coded


def _source(directory: str | None, claim: str | None) -> CodeSource | None:
    if directory is None:
        if claim is not None:
            raise click.UsageError(f"{CLAIM_OPTION} needs {OPTION}: name the directory that holds the code")
        return None
    return CodeInConfigMap(directory) if claim is None else CodeOnClaim(directory, claim)
