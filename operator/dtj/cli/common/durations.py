"""Durations as kubectl takes them: 30s, 5m, 1h30m."""

from __future__ import annotations

import re
from typing import Final

import click

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
