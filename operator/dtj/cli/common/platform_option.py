"""The option of commands that judge manifests without a cluster: which accelerator profiles its operator knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dtj.core.platform import Platform
from dtj.engine.profile_file import ProfilesError, profiles

F = TypeVar("F", bound=Callable[..., Any])


def platform_option(command: F) -> F:
    """Give a command ``--profiles FILE``, and as ``platform`` the cluster whose operator was told of them."""
    return click.option(
        "--profiles",
        "platform",
        type=click.Path(path_type=Path),
        callback=_platform,
        metavar="FILE",
        help="Accelerator profiles beside the shipped ones: a list, or the values of the operator's chart.",
    )(command)


def _platform(context: click.Context, parameter: click.Parameter, value: Path | None) -> Platform:
    try:
        return Platform(profiles=profiles(value))
    except ProfilesError as error:
        raise click.BadParameter(str(error), context, parameter) from error
