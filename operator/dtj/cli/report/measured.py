"""What the training measured, out of event files or out of what the leader printed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import text
from dtj.cli.report.evidence import Log, Scalar

SPEED: Final = "examples/s"
VALIDATION: Final = "val_"
"""What the name of a metric of held-out examples begins with, as in Keras."""

AT_THE_END: Final = "held_out/"
"""The same of the evaluation after the last step."""

_SCALAR_OF_SPEED: Final = "examples_per_second"
_SIZES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_STEP: Final = re.compile(r"(?:validation: )?step (\d+)(?:/\d+(?: \(\d+%\))?)?(?:  (.+))?")
_END: Final = re.compile(r"held-out: (.+)")
_PAIR: Final = re.compile(r"([^\s/]+) (-?[\d.]+(?:e[-+]?\d+)?)")
_SPEED: Final = re.compile(r"([\d.]+)([kMG]?) examples/s")
_NO_METRICS: Final = ("epoch", "ETA")


@dataclass(frozen=True, slots=True)
class Measured:
    """A value at a step; ``at`` is when, where that is known."""

    name: str
    step: int
    value: float
    at: datetime | None


def from_scalars(scalars: Iterable[Scalar]) -> Iterator[Measured]:
    """The points of event files."""
    for scalar in scalars:
        name = SPEED if scalar.name == _SCALAR_OF_SPEED else scalar.name
        yield Measured(name, scalar.step, scalar.value, scalar.at)


def from_logs(logs: Iterable[Log]) -> Iterator[Measured]:
    """What the leader printed; its earlier incarnations printed theirs before."""
    series = [list(_from_log(log)) for log in logs]
    for points in sorted(filter(None, series), key=_beginning):
        yield from points


def _beginning(points: list[Measured]) -> float:
    moment = points[0].at
    return moment.timestamp() if moment is not None else 0.0


def _from_log(log: Log) -> Iterator[Measured]:
    step = 0
    for line in log.text.splitlines():
        at = None
        if log.stamped:
            stamp, _, line = line.partition(" ")
            at = parse_time(stamp)
        words = message_of(line).strip()
        found = _STEP.fullmatch(words)
        if found is not None:
            step = int(found[1])
            yield from _values(found[2] or "", step, at)
        elif (end := _END.fullmatch(words)) is not None:
            for each in _values(end[1], step, at):
                yield Measured(f"{AT_THE_END}{each.name}", each.step, each.value, each.at)


def message_of(line: str) -> str:
    """What a line says: itself, or the message of a trainer that logs JSON (DTJ_LOG_FORMAT=json)."""
    if not line.startswith("{"):
        return line
    try:
        return text(json.loads(line).get("message"))
    except (ValueError, RecursionError):
        return line


def _values(words: str, step: int, at: datetime | None) -> Iterator[Measured]:
    for part in words.split("  "):
        if (speed := _SPEED.fullmatch(part)) is not None:
            yield Measured(SPEED, step, _number(speed[1]) * _SIZES[speed[2]], at)
        elif (pair := _PAIR.fullmatch(part)) is not None and pair[1] not in _NO_METRICS:
            yield Measured(pair[1], step, _number(pair[2]), at)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
