"""How the training went: curves of its metrics and its speed over the steps. Pure.

After a restart the steps go back to the last checkpoint, and some are done once more. A curve shows each step as it was
done the last time; what that replaces is kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from dtj.cli.report.evidence import Scalar
from dtj.cli.report.leader_log import AT_THE_END, SPEED, VALIDATION

MAX_POINTS: Final = 400

_SMALLEST, _LARGEST = 1e-200, 1e200
"""Values beyond these cannot be drawn: a range of them is no number."""

Points = tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one quantity, by step.

    ``validation`` are those of examples that were not trained on, ``redone`` the stretches that a restart undid, and
    ``restarts`` the last steps before each restart. ``name`` begins with ``val_`` where only held-out values are known.
    """

    name: str
    points: Points
    validation: Points = ()
    redone: tuple[Points, ...] = ()
    restarts: tuple[int, ...] = ()

    @property
    def everything(self) -> Points:
        """All points that are drawn."""
        return (*self.points, *self.validation, *(point for stretch in self.redone for point in stretch))


def curves(scalars: Iterable[Scalar], restarts: Iterable[datetime] = ()) -> tuple[Curve, ...]:
    """The loss first, then the speed, then what else was measured; each with two points at least.

    ``restarts`` are the moments at which the training was taken up again.
    """
    by_name: dict[str, list[Scalar]] = {}
    last = 0
    for each in scalars:
        last = max(last, 0 if each.name.startswith(AT_THE_END) else each.step)
        if each.value == 0 or _SMALLEST < abs(each.value) < _LARGEST:
            by_name.setdefault(each.name, []).append(each)

    def is_drawn(name: str) -> bool:
        return len(by_name.get(name, ())) > 1 and not name.startswith(AT_THE_END)

    moments = tuple(restarts)
    # Held-out values have a plot of their own only if there is none of the training's.
    drawn = [name for name in by_name if is_drawn(name)]
    drawn = [name for name in drawn if not (name.startswith(VALIDATION) and name.removeprefix(VALIDATION) in drawn)]
    drawn.sort(key=lambda name: (name != "loss", name != SPEED))
    return tuple(_curve(name, by_name, moments, last) for name in drawn)


def _curve(name: str, by_name: dict[str, list[Scalar]], moments: tuple[datetime, ...], last: int) -> Curve:
    points, redone = _as_done_last(by_name[name])
    validation = _newest(by_name.get(f"{VALIDATION}{name}", []))
    ends = by_name.get(f"{AT_THE_END}{name}", [])
    if ends and not (validation and validation[-1].step == last):
        validation = (*validation, Scalar(name, last, ends[-1].value, ends[-1].at))
    marks = {stretch[0].step for stretch in redone}
    for before, after in pairwise(points):
        if before.at is not None and after.at is not None and any(before.at < at <= after.at for at in moments):
            marks.add(before.step)
    return Curve(name, _thinned(points), _thinned(validation), tuple(map(_thinned, redone)), tuple(sorted(marks)))


def _as_done_last(points: list[Scalar]) -> tuple[Points, tuple[Points, ...]]:
    """The points of each step as it was done the last time, and the stretches that are replaced by them.

    A stretch begins with the last point that stays, so that it can be drawn from there.
    """
    cuts = [0, *(i for i, (a, b) in enumerate(pairwise(points), 1) if b.step < a.step), len(points)]
    kept: list[Scalar] = []
    redone: list[Points] = []
    first_redone = float("inf")
    for start, end in reversed([*pairwise(cuts)]):
        run = points[start:end]
        stays = [point for point in run if point.step < first_redone]
        if len(stays) < len(run):
            redone.insert(0, (*stays[-1:], *run[len(stays) :]))
        kept = [*stays, *kept]
        first_redone = min(first_redone, run[0].step)
    return tuple(kept), tuple(redone)


def _newest(points: list[Scalar]) -> Points:
    """The newest point of each step. A line of progress repeats the newest held-out value: that is no new one."""
    newest = {point.step: point for point in points}
    kept: list[Scalar] = []
    for _, point in sorted(newest.items()):
        if not kept or kept[-1].value != point.value:
            kept.append(point)
    return tuple(kept)


def _thinned(points: Points) -> Points:
    """A selection of the points that a page can draw. It keeps the first and the last."""
    if len(points) <= MAX_POINTS:
        return points
    return tuple(points[round(i * (len(points) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS))
