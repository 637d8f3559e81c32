"""How the training went: curves of its metrics and its speed over the steps, out of what the leader said. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isfinite
from typing import Final

from dtj.api.job import parse_time
from dtj.cli.report.evidence import Evidence, Log, Scalar

SPEED: Final = "examples/s"
MAX_CURVES: Final = 6
MAX_POINTS: Final = 400

_SCALAR_OF_SPEED: Final = "examples_per_second"
_SIZES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_STEP: Final = re.compile(r"step (\d+)(?:/\d+ \(\d+%\))?(?:  (.+))?")
_PAIR: Final = re.compile(r"([^\s/]+) (-?[\d.]+(?:e[-+]?\d+)?)")
_SPEED: Final = re.compile(r"([\d.]+)([kMG]?) examples/s")
_NO_METRICS: Final = ("epoch", "ETA")


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a step; ``at`` is when, where that is known."""

    step: int
    value: float
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one quantity in the order in which they were reported: after a restart the steps go back."""

    name: str
    points: tuple[Point, ...]

    @property
    def runs(self) -> tuple[tuple[Point, ...], ...]:
        """The points between two restarts."""
        cuts = [0, *(i for i, (a, b) in enumerate(pairwise(self.points), 1) if b.step < a.step), len(self.points)]
        return tuple(self.points[a:b] for a, b in pairwise(cuts))


def curves(evidence: Evidence) -> tuple[Curve, ...]:
    """The loss first, then the speed, then what else was measured; each with two points at least.

    From the event files where there are any, since the log holds a line every few seconds only.
    """
    measured = list(_from_scalars(evidence.scalars)) or list(_from_logs(evidence.logs))
    by_name: dict[str, list[Point]] = {}
    for name, point in measured:
        if isfinite(point.value):
            by_name.setdefault(name, []).append(point)
    found = [Curve(name, tuple(_thinned(points))) for name, points in by_name.items() if len(points) > 1]
    return tuple(sorted(found, key=lambda curve: (curve.name != "loss", curve.name != SPEED)))[:MAX_CURVES]


def _from_scalars(scalars: Iterable[Scalar]) -> Iterator[tuple[str, Point]]:
    for scalar in scalars:
        name = SPEED if scalar.name == _SCALAR_OF_SPEED else scalar.name
        yield name, Point(scalar.step, scalar.value, scalar.at)


def _from_logs(logs: Iterable[Log]) -> Iterator[tuple[str, Point]]:
    """Only the leader prints these lines; its earlier incarnations printed theirs before."""
    series = [list(_from_log(log)) for log in logs]
    for points in sorted(filter(None, series), key=_beginning):
        yield from points


def _beginning(points: list[tuple[str, Point]]) -> float:
    moment = points[0][1].at
    return moment.timestamp() if moment is not None else 0.0


def _from_log(log: Log) -> Iterator[tuple[str, Point]]:
    for line in log.text.splitlines():
        at = None
        if log.stamped:
            stamp, _, line = line.partition(" ")
            at = parse_time(stamp)
        step = _STEP.fullmatch(_message(line).strip())
        if step is None:
            continue
        for part in (step[2] or "").split("  "):
            if (speed := _SPEED.fullmatch(part)) is not None:
                yield SPEED, Point(int(step[1]), _number(speed[1]) * _SIZES[speed[2]], at)
            elif (pair := _PAIR.fullmatch(part)) is not None and pair[1] not in _NO_METRICS:
                yield pair[1], Point(int(step[1]), _number(pair[2]), at)


def _message(line: str) -> str:
    """What a line says: itself, or the message of a trainer that logs JSON (DTJ_LOG_FORMAT=json)."""
    if not line.startswith("{"):
        return line
    try:
        found = json.loads(line)
    except ValueError:
        return line
    message = found.get("message")
    return message if isinstance(message, str) else line


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


def _thinned(points: list[Point]) -> list[Point]:
    """So many that a page can draw them, the first and the last among them."""
    if len(points) <= MAX_POINTS:
        return points
    return [points[round(i * (len(points) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]
