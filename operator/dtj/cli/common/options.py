"""Options that several commands have, and kinds of values that are refused in our own words."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from dtj.core.platform import Platform


class WholeNumber(click.IntRange):
    """A range of whole numbers. Click calls any other text "not a valid integer range"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Fails for other texts and for numbers out of range."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f'"{value}" is not a whole number {self._limits()}', param, ctx)

    def _limits(self) -> str:
        return f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"


class NamespaceName(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """The name of a namespace. Any other text would become a part of a host name or of the path of a request."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, unchanged."""
        from dtj.api.names import namespace_problem

        if problem := namespace_problem(value):
            self.fail(problem, param, ctx)
        return value


CODE: Final = "--code"

_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Becomes a number of seconds, more than 0, or where ``zero`` is allowed, at least 0. A bare number is seconds."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        seconds = _seconds(value)
        if seconds is None or (seconds == 0 and not self._zero):
            self.fail(f'"{value}" is not a duration: write 30s, 5m or 1h30m', param, ctx)
        return seconds


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    if len(text) > 40 or not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


E = TypeVar("E", bound=StrEnum)


class OneOf(click.Choice[E]):
    """A choice among an enumeration's values; :class:`click.Choice` alone would take its members' names."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


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
    from dtj.core.platform import Platform
    from dtj.engine.profile_file import ProfilesError, profiles

    try:
        return Platform(profiles=profiles(value))
    except ProfilesError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def code_option(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--code DIR`` as ``code``."""
    command = click.option(
        "--code-claim", hidden=True, expose_value=False, is_eager=True, metavar="CLAIM", callback=_no_claim
    )(command)
    return click.option(
        CODE,
        metavar="DIR",
        help="Send the files of this directory along, in a ConfigMap; the pods find them in their working directory. "
        "DIR/.dtjignore excludes files, as a .gitignore does.",
    )(command)


def _no_claim(_context: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        raise click.UsageError(
            f"{option.opts[0]} is gone: put code that a ConfigMap cannot hold into an image, or onto a volume"
        )
