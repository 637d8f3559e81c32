"""The timeline and the curves as SVG: rows and scalars go in, text comes out. Pure.

Places along the width are percents, so that a drawing fills any width with letters of one size; what cannot be given
in percents, a line through points, lies in a nested drawing that is stretched. A curve has a linear and a logarithmic
axis: the choice is a checkbox that the style sheet obeys, because the page has no scripts.

After a restart the steps go back to the last checkpoint, and some are done once more. A curve shows each step as it was
done the last time; what that replaces is kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final

from dtj.api.printable import printable
from dtj.cli.common.formatting import short_number, short_time
from dtj.cli.report.evidence import AT_THE_END, SPEED, VALIDATION, Scalar
from dtj.cli.report.timeline import Bar, History, Look, Row

_ROW: Final = 18
_PLOT: Final = 170
"""Heights."""

_MAX_CIRCLES: Final = 80
"""More would hide the line."""

_MAX_RATIO: Final = 100.0
"""Ratio of the largest to the smallest value from which a plot starts with a logarithmic axis."""

_ENDS: Final = (Look.SUCCEEDED, Look.FAILED, Look.STOPPED)
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def safe(content: str) -> str:
    """Text of others that stands for itself in HTML, in a text or in an attribute, whatever it holds."""
    return escape(printable(content))


# -- the timeline -----------------------------------------------------------------------------------------------


def timeline(history: History) -> str:
    """A row for each attempt and pod, one under the other, with the time since the beginning below.

    The time between two starts of a run is left out; a line marks the place.
    """
    if not history.rows:
        return ""
    seconds = max(history.seconds, 1.0)
    step = next((size for size in _SECONDS if seconds / size <= 5), 86400 * ceil(seconds / 86400 / 5))
    ticks = [float(step * number) for number in range(int(seconds // step) + 1)]
    grid = "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in _percents(ticks, seconds))
    pauses = ""
    for start, end in history.pauses:
        (x,) = _percents([history.elapsed(start)], seconds)
        words = f"not running for {short_time((end - start).total_seconds())} from {start:%H:%M:%S}"
        pauses += f'<line class="restart" x1="{x}" x2="{x}" y1="0" y2="100%"><title>{words}</title></line>'
    labels = "".join(
        f'<text x="{x}" y="13" text-anchor="{"middle" if tick else "start"}">{short_time(tick) if tick else 0}</text>'
        for tick, x in zip(ticks, _percents(ticks, seconds), strict=True)
        if tick <= 0.96 * seconds
    )
    rows = "".join(_row(row, history, seconds, grid, pauses) for row in history.rows)
    return f'<div class="timeline">{rows}<div class="name"></div><svg height="{_ROW}">{labels}</svg></div>'


def _percents(moments: list[float], seconds: float) -> list[str]:
    return [f"{100 * moment / seconds:.3f}%" for moment in moments]


def _row(row: Row, history: History, seconds: float, grid: str, pauses: str) -> str:
    gone = ' <span class="gone">gone</span>' if row.gone else ""
    label = safe(f"{row.name}: {'; '.join(map(_description, row.bars))}")
    bars = []
    for bar in row.bars:
        # What is over in a moment must be seen too; an end is a moment, and must be seen best.
        least = 0.9 if bar.look in _ENDS else 0.4
        width = max(100 * (bar.end - bar.start).total_seconds() / seconds, least)
        place = min(100 * history.elapsed(bar.start) / seconds, 100 - width)
        bars.append(
            f'<rect class="{bar.look}" x="{place:.3f}%" y="3" width="{width:.3f}%" height="{_ROW - 6}" rx="2">'
            f"<title>{safe(_description(bar))}</title></rect>"
        )
    return (
        f'<div class="name">{safe(row.name)}{gone}</div>'
        f'<svg height="{_ROW}" role="img" aria-label="{label}">{grid}{"".join(bars)}{pauses}</svg>'
    )


def _description(bar: Bar) -> str:
    seconds = (bar.end - bar.start).total_seconds()
    return f"{bar.words}, " + (f"{short_time(seconds)} from " if seconds else "at ") + f"{bar.start:%H:%M:%S}"


# -- curves -----------------------------------------------------------------------------------------------------


def plot(curve: Curve, *, number: int) -> str:
    """The curve of one quantity. ``number`` is another one for each plot of the page."""
    values = [point.value for point in curve.everything]
    low, high = min(values), max(values)
    linear = _drawn(curve, "linear", *_linear(low, high))
    if low <= 0 or high < 2 * low:
        return linear
    checked = " checked" if high >= _MAX_RATIO * low else ""
    return (
        f'<input type="checkbox" class="axis" id="axis-{number}"{checked}><label class="axis" for="axis-{number}">'
        f"log axis</label>{linear}{_drawn(curve, 'log', *_logarithmic(low, high))}"
    )


def _drawn(curve: Curve, kind: str, y: Callable[[float], float], ticks: list[float]) -> str:
    """``y`` gives the percent of the height of a value; ``ticks`` are the values where lines are drawn."""
    first, last = min(point.step for point in curve.everything), max(point.step for point in curve.everything)

    def x(step: int) -> float:
        return 100 * (step - first) / max(last - first, 1)

    def line(points: Points, look: str) -> str:
        places = " ".join(f"{x(point.step):.2f},{y(point.value):.2f}" for point in points)
        return f'<polyline class="{look}" points="{places}"/>' if len(points) > 1 else ""

    def circles(points: Points, look: str, radius: float) -> str:
        return "".join(
            f'<circle class="{look}" cx="{x(point.step):.2f}%" cy="{y(point.value):.2f}%" r="{radius}">'
            f"<title>{look.replace('trained', '')} {_point(point)}</title></circle>"
            for point in points[:: ceil(len(points) / _MAX_CIRCLES) or 1]
        )

    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y(tick):.2f}%" y2="{y(tick):.2f}%"/>' for tick in ticks)
    labels = "".join(
        f'<text x="36" y="{y(tick):.2f}%" dy="4" text-anchor="end">{short_value(tick)}</text>' for tick in ticks
    )
    marks = "".join(
        f'<line class="restart" x1="{x(step):.2f}%" x2="{x(step):.2f}%" y1="0" y2="100%">'
        f"<title>restarted after step {step}</title></line>"
        for step in curve.restarts
    )
    lines = "".join(line(stretch, "redone") for stretch in curve.redone)
    lines += line(curve.points, "trained") + line(curve.validation, "held-out")
    dots = circles(curve.points, "trained", 2.5) + circles(curve.validation, "held-out", 3.5)
    label = safe(f"{curve.name}: {_point(curve.points[0])}, {_point(curve.points[-1])}")
    return (
        f'<div class="plot {kind}"><svg class="scale" height="{_PLOT}" role="presentation">{labels}</svg>'
        f'<svg height="{_PLOT + 22}" role="img" aria-label="{label}"><svg width="100%" height="{_PLOT}">{grid}{marks}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none">{lines}</svg>{dots}</svg>'
        f'<text x="0" y="{_PLOT + 18}">step {first}</text>'
        f'<text x="100%" y="{_PLOT + 18}" text-anchor="end">{last}</text></svg></div>'
    )


def _point(point: Scalar) -> str:
    return f"{short_value(point.value)} at step {point.step}" + (f", {point.at:%H:%M:%S}" if point.at else "")


def short_value(value: float) -> str:
    """A metric's value in few digits: 0.0312, 1.25, 3.1k."""
    if value == 0:
        return "0"
    return f"{'-' if value < 0 else ''}{short_number(abs(value))}" if abs(value) >= 1 else f"{value:.3g}"


def _linear(low: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    """Round bounds around the values."""
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    if high - low < 1e-12 * max(abs(high), 1e-30):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    size = 10 ** floor(log10((high - low) / 3))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (size * factor) <= 4)
    bottom, top = floor(low / step), ceil(high / step)
    ticks = [step * number for number in range(bottom, top + 1)]
    return lambda value: 100 * (top * step - value) / ((top - bottom) * step), ticks


def _logarithmic(low: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    """Powers of ten around positive values; within few of them also 2 and 5 times each."""
    bottom, top = floor(log10(low)), ceil(log10(high))
    factors = (1, 2, 5) if top - bottom < 3 else (1,)
    round_values = [10.0**power * factor for power in range(bottom, top + 1) for factor in factors]
    lowest = max((value for value in round_values if value <= low), default=low)
    highest = min((value for value in round_values if value >= high), default=high)
    ticks = [value for value in round_values if lowest <= value <= highest]
    size = log10(highest) - log10(lowest)
    return lambda value: 100 * (log10(highest) - log10(value)) / size, ticks[:: ceil(len(ticks) / 7)]


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
