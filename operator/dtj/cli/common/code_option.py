"""The option of commands that submit jobs: a directory whose files the pods find in their working directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dtj.cli.common.submission import OPTION


def code_option(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--code DIR`` as ``code``."""
    command = click.option(
        "--code-claim", hidden=True, expose_value=False, is_eager=True, metavar="CLAIM", callback=_no_claim
    )(command)
    return click.option(
        OPTION,
        metavar="DIR",
        help="Send the files of this directory along, in a ConfigMap; the pods find them in their working directory. "
        "DIR/.dtjignore excludes files, as a .gitignore does.",
    )(command)


def _no_claim(_context: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        raise click.UsageError(
            f"{option.opts[0]} is gone: put code that a ConfigMap cannot hold into an image, or onto a volume"
        )
