"""The timeline and the curves as SVG: rows and scalars go in, text comes out. Pure.

Places along the width are percents, so that a drawing fills any width with letters of one size; what cannot be given
in percents, a line through points, lies in a nested drawing that is stretched.

After a restart the steps go back to the last checkpoint, and some are done once more. A curve shows each step as it was
done the last time; what that replaces is kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import groupby, pairwise
from math import ceil, floor, log10
from typing import Final

from dtj.api.printable import printable
from dtj.cli.common.formatting import short_number, short_time
from dtj.cli.report.evidence import AT_THE_END, SPEED, VALIDATION, Scalar
from dtj.cli.report.timeline import ENDS, Bar, History

_ROW: Final = 18
_PLOT: Final = 170
"""Heights."""

_MAX_CIRCLES: Final = 80
"""More would hide the line."""

_MAX_RATIO: Final = 100.0
"""Ratio of the largest to the smallest value from which a plot has a logarithmic axis."""

_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def safe(content: str) -> str:
    """Text of others that stands for itself in HTML, in a text or in an attribute, whatever it holds."""
    return escape(printable(content))


# -- the timeline -----------------------------------------------------------------------------------------------


def timeline(known: History) -> str:
    """A row for each replica or pod, one under the other, with the time since the beginning below.

    The time between two starts of a run is left out; a line marks each restart, and each change of the members.
    """
    seconds = max(known.elapsed(known.end), 1.0)

    def x(moment: datetime) -> str:
        return f"{100 * known.elapsed(moment) / seconds:.3f}%"

    def rectangle(bar: Bar) -> str:
        # What is over in a moment must be seen too; an end is a moment, and must be seen best.
        least = 0.9 if bar.look in ENDS else 0.4
        lasted = (bar.end - bar.start).total_seconds()
        width = max(100 * lasted / seconds, least)
        place = min(100 * known.elapsed(bar.start) / seconds, 100 - width)
        words = f"{bar.words}, {f'{short_time(lasted)} from' if lasted else 'at'} {bar.start:%H:%M:%S}"
        return (
            f'<rect class="{bar.look}" x="{place:.3f}%" y="3" width="{width:.3f}%" height="{_ROW - 6}" rx="2">'
            f"<title>{safe(words)}</title></rect>"
        )

    step = next((size for size in _SECONDS if seconds / size <= 5), 86400 * ceil(seconds / 86400 / 5))
    ticks = {tick: f"{100 * tick / seconds:.3f}%" for tick in range(0, int(seconds) + 1, step)}
    grid = "".join(_vertical(place, "grid") for place in ticks.values())
    marks = "".join(
        _vertical(x(at), look, f"{words}, at {at:%H:%M:%S}")
        for look, moments in (("change", known.changes), ("restart", known.restarts))
        for at, words in moments
    )
    labels = "".join(
        f'<text x="{place}" y="13" text-anchor="{"middle" if tick else "start"}">{short_time(tick)}</text>'
        for tick, place in ticks.items()
        if tick <= 0.96 * seconds
    )
    rows = "".join(
        f'<div class="name">{safe(row.name)} <span class="dim">{safe(row.where)}</span></div>'
        f'<svg height="{_ROW}" role="img" aria-label="{safe(f"{row.name}: {row.bars[-1].words}")}">'
        f"{grid}{''.join(map(rectangle, row.bars))}{marks}</svg>"
        for row in known.rows
    )
    return f'<div class="timeline">{rows}<div class="name"></div><svg height="{_ROW}">{labels}</svg></div>'


def stacked(parts: Iterable[tuple[str, str, int]]) -> str:
    """A bar of parts side by side, each with its look, its words and its size."""
    found = [part for part in parts if part[2]]
    total, place, bars = max(1, sum(size for *_, size in found)), 0, ""
    for look, words, size in found:
        x, width = f"{100 * place / total:.3f}%", f"{100 * size / total:.3f}%"
        title = f"<title>{safe(words)}</title>"
        bars += f'<rect class="{look}" x="{x}" y="3" width="{width}" height="{_ROW - 6}">{title}</rect>'
        place += size
    label = safe(", ".join(words for _, words, _ in found))
    return f'<svg height="{_ROW}" role="img" aria-label="{label}">{bars}</svg>'


def _vertical(x: str, look: str, words: str = "") -> str:
    title = f"<title>{safe(words)}</title>" if words else ""
    return f'<line class="{look}" x1="{x}" x2="{x}" y1="0" y2="100%">{title}</line>'


# -- curves -----------------------------------------------------------------------------------------------------


def plot(curve: Curve) -> str:
    """The curve of one quantity, on a logarithmic axis if its values span decades."""
    numbers, steps = [point.number for point in curve.everything], [point.step for point in curve.everything]
    low, high, first, last = min(numbers), max(numbers), min(steps), max(steps)
    y, ticks = _axis(low, high)

    def x(step: int) -> float:
        return 100 * (step - first) / max(last - first, 1)

    def line(points: Points, look: str) -> str:
        places = " ".join(f"{x(point.step):.2f},{y(point.number):.2f}" for point in points)
        return f'<polyline class="{look}" points="{places}"/>' if len(points) > 1 else ""

    def circles(points: Points, look: str, radius: float) -> str:
        return "".join(
            f'<circle class="{look}" cx="{x(point.step):.2f}%" cy="{y(point.number):.2f}%" r="{radius}">'
            f"<title>{look.replace('trained', '')} {_point(point)}</title></circle>"
            for point in points[:: ceil(len(points) / _MAX_CIRCLES) or 1]
        )

    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y(tick):.2f}%" y2="{y(tick):.2f}%"/>' for tick in ticks)
    labels = "".join(
        f'<text x="36" y="{y(tick):.2f}%" dy="4" text-anchor="end">{short_value(tick)}</text>' for tick in ticks
    )
    marks = "".join(_vertical(f"{x(step):.2f}%", "restart", f"restarted after step {step}") for step in curve.restarts)
    lines = "".join(line(stretch, "redone") for stretch in curve.redone)
    lines += line(curve.points, "trained") + line(curve.validation, "held-out")
    dots = circles(curve.points, "trained", 2.5) + circles(curve.validation, "held-out", 3.5)
    label = safe(f"{curve.name}: {_point(curve.points[0])}, {_point(curve.points[-1])}")
    return (
        f'<div class="plot"><svg class="scale" height="{_PLOT}" role="presentation">{labels}</svg>'
        f'<svg height="{_PLOT + 22}" role="img" aria-label="{label}"><svg width="100%" height="{_PLOT}">{grid}{marks}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none">{lines}</svg>{dots}</svg>'
        f'<text x="0" y="{_PLOT + 18}">step {first}</text>'
        f'<text x="100%" y="{_PLOT + 18}" text-anchor="end">{last}</text></svg></div>'
    )


def _point(point: Scalar) -> str:
    return f"{short_value(point.number)} at step {point.step}" + (f", {point.at:%H:%M:%S}" if point.at else "")


def short_value(value: float) -> str:
    """A metric's value in few digits: 0.0312, 1.25, 3.1k."""
    if value == 0:
        return "0"
    return f"{'-' if value < 0 else ''}{short_number(abs(value))}" if abs(value) >= 1 else f"{value:.3g}"


def _axis(low: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    """The percent of the height at which a value lies, and round values around all of them, where lines are drawn."""
    if low > 0 and high >= _MAX_RATIO * low:
        first, last = floor(log10(low)), ceil(log10(high))
        powers = range(first, last + 1, ceil((last - first) / 6))
        return lambda value: 100 * (last - log10(value)) / (last - first), [10.0**power for power in powers]
    if 0 <= low < 0.5 * high:
        low = 0.0
    if high - low <= 1e-12 * abs(high):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    size = 10 ** floor(log10((high - low) / 3))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (size * factor) <= 4)
    bottom, top = floor(low / step), ceil(high / step)
    ticks = [step * number for number in range(bottom, top + 1)]
    return lambda value: 100 * (top * step - value) / ((top - bottom) * step), ticks


# -- the points of a curve --------------------------------------------------------------------------------------

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
        if each.number == 0 or _SMALLEST < abs(each.number) < _LARGEST:
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
    newest = {point.step: point for point in by_name.get(f"{VALIDATION}{name}", [])}
    # A line of progress repeats the newest held-out value: that is no new one.
    by_value = groupby((point for _, point in sorted(newest.items())), key=lambda point: point.number)
    validation = tuple(next(same) for _, same in by_value)
    ends = by_name.get(f"{AT_THE_END}{name}", [])
    if ends and not (validation and validation[-1].step == last):
        validation = (*validation, Scalar(name, last, ends[-1].number, ends[-1].at))
    marks = {stretch[0].step for stretch in redone}
    for before, after in pairwise(points):
        if before.at is not None and after.at is not None and any(before.at < at <= after.at for at in moments):
            marks.add(before.step)
    return Curve(name, _thinned(points), _thinned(validation), tuple(map(_thinned, redone)), tuple(sorted(marks)))


def _as_done_last(points: list[Scalar]) -> tuple[Points, tuple[Points, ...]]:
    """The points of each step as it was done the last time, and the stretches that are replaced by them.

    A stretch begins with the last point that stays, so that it can be drawn from there.
    """
    kept: list[Scalar] = []
    redone: list[Points] = []
    for point in points:
        if kept and point.step < kept[-1].step:
            cut = next(place for place, before in enumerate(kept) if before.step >= point.step)
            redone.append(tuple(kept[max(cut - 1, 0) :]))
            del kept[cut:]
        kept.append(point)
    return tuple(kept), tuple(redone)


def _thinned(points: Points) -> Points:
    """A selection of the points that a page can draw. It keeps the first and the last."""
    if len(points) <= MAX_POINTS:
        return points
    return tuple(points[round(i * (len(points) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS))
