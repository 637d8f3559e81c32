"""How the training went: curves of its metrics and its speed over the steps. Pure.

After a restart the steps go back to the last checkpoint, and some are done once more. A curve shows each step as it was
done the last time; what that replaces is kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isfinite
from typing import Final

from dtj.cli.report.evidence import Evidence
from dtj.cli.report.measured import AT_THE_END, SPEED, VALIDATION

MAX_POINTS: Final = 400

_SMALLEST, _LARGEST = 1e-200, 1e200
"""Values beyond these cannot be drawn: a range of them is no number."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a step; ``at`` is when, where that is known."""

    step: int
    value: float
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one quantity, by step.

    ``validation`` are those of examples that were not trained on, ``redone`` the stretches that a restart undid, and
    ``restarts`` the last steps before each restart. ``name`` begins with ``val_`` where only held-out values are known.
    """

    name: str
    points: tuple[Point, ...]
    validation: tuple[Point, ...] = ()
    redone: tuple[tuple[Point, ...], ...] = ()
    restarts: tuple[int, ...] = ()

    @property
    def everything(self) -> tuple[Point, ...]:
        """All points that are drawn."""
        return (*self.points, *self.validation, *(point for stretch in self.redone for point in stretch))


def curves(evidence: Evidence, restarts: Iterable[datetime] = ()) -> tuple[Curve, ...]:
    """The loss first, then the speed, then what else was measured; each with two points at least.

    ``restarts`` are the moments at which the training was taken up again.
    """
    by_name: dict[str, list[Point]] = {}
    for each in evidence.scalars:
        if isfinite(each.value) and (each.value == 0 or _SMALLEST < abs(each.value) < _LARGEST):
            by_name.setdefault(each.name, []).append(Point(each.step, each.value, each.at))
    moments = tuple(restarts)
    last = max((each.step for each in evidence.scalars if not each.name.startswith(AT_THE_END)), default=0)
    found = [_curve(name, by_name, moments, last) for name in by_name if _is_drawn(name, by_name)]
    return tuple(sorted(found, key=lambda curve: (curve.name != "loss", curve.name != SPEED)))


def _is_drawn(name: str, by_name: dict[str, list[Point]]) -> bool:
    if len(by_name[name]) < 2 or name.startswith(AT_THE_END):
        return False
    # Held-out values have a plot of their own only if there is none of the training's.
    return not name.startswith(VALIDATION) or len(by_name.get(name.removeprefix(VALIDATION), ())) < 2


def _curve(name: str, by_name: dict[str, list[Point]], moments: tuple[datetime, ...], last: int) -> Curve:
    points, redone = _as_done_last(by_name[name])
    validation = _by_step(by_name.get(f"{VALIDATION}{name}", []))
    ends = by_name.get(f"{AT_THE_END}{name}", [])
    if ends and not (validation and validation[-1].step == last):
        validation = (*validation, Point(last, ends[-1].value, ends[-1].at))
    marks = {before.step for before, after in pairwise(points) if _taken_up_between(before, after, moments)}
    marks |= {stretch[0].step for stretch in redone}
    return Curve(name, _thinned(points), _thinned(validation), tuple(map(_thinned, redone)), tuple(sorted(marks)))


def _as_done_last(points: list[Point]) -> tuple[tuple[Point, ...], tuple[tuple[Point, ...], ...]]:
    """The points of each step as it was done the last time, and the stretches that are replaced by them.

    A stretch begins with the last point that stays, so that it can be drawn from there.
    """
    cuts = [0, *(i for i, (a, b) in enumerate(pairwise(points), 1) if b.step < a.step), len(points)]
    kept: list[Point] = []
    redone: list[tuple[Point, ...]] = []
    first_redone = float("inf")
    for start, end in reversed([*pairwise(cuts)]):
        run = points[start:end]
        stays = [point for point in run if point.step < first_redone]
        if len(stays) < len(run):
            redone.insert(0, (*stays[-1:], *run[len(stays) :]))
        kept = [*stays, *kept]
        first_redone = min(first_redone, run[0].step)
    return tuple(kept), tuple(redone)


def _taken_up_between(before: Point, after: Point, moments: tuple[datetime, ...]) -> bool:
    if before.at is None or after.at is None:
        return False
    return any(before.at < moment <= after.at for moment in moments)


def _by_step(points: list[Point]) -> tuple[Point, ...]:
    """The newest point of each step. A line of progress repeats the newest held-out value: that is no new one."""
    newest = {point.step: point for point in points}
    kept: list[Point] = []
    for _, point in sorted(newest.items()):
        if not kept or kept[-1].value != point.value:
            kept.append(point)
    return tuple(kept)


def _thinned(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """A selection of the points that a page can draw. It keeps the first and the last."""
    if len(points) <= MAX_POINTS:
        return points
    return tuple(points[round(i * (len(points) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS))
