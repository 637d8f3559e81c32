"""Types of arguments and options that several commands take."""

from __future__ import annotations

import re
from typing import Final

import click

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)"
_MOST: Final = 10 * 365 * 24 * 3600.0


class Duration(click.ParamType):
    """A time as kubectl takes it, ``90s``, ``10m`` or ``1h30m``, as seconds; a plain number is seconds, too."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if re.fullmatch(r"\d+(\.\d+)?", value):
            seconds = float(value)
        elif re.fullmatch(f"(?:{_PART})+", value):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, value))
        else:
            self.fail(f'"{value}" is no time: write it as 90s, 10m or 1h30m', param, ctx)
        if seconds > _MOST:
            self.fail(f'"{value}" is more than ten years', param, ctx)
        return seconds
