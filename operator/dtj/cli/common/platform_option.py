"""The option of commands that check manifests without a cluster: which accelerator profiles its operator has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dtj.core.platform import Platform

F = TypeVar("F", bound=Callable[..., Any])


def platform_option(command: F) -> F:
    """Give a command ``--profiles FILE``, and as ``platform`` the cluster whose operator has them."""
    return click.option(
        "--profiles",
        "platform",
        type=click.Path(path_type=Path),
        callback=_platform,
        metavar="FILE",
        help="Accelerator profiles in addition to the shipped ones: a list, or the values of the operator's chart.",
    )(command)


def _platform(context: click.Context, parameter: click.Parameter, value: Path | None) -> Platform | None:
    if context.resilient_parsing:  # a Tab: nothing is checked
        return None
    from dtj.convert.profile_file import ProfilesError, profiles
    from dtj.core.platform import Platform

    try:
        return Platform(profiles=profiles(value))
    except ProfilesError as error:
        raise click.BadParameter(str(error), context, parameter) from error
