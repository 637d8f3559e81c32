"""Curves over steps as SVG, with a linear and a logarithmic axis to choose from. Pure.

Places along the width are percents, so that a drawing fills any width with letters of one size; what cannot be given
in percents, a line through points, lies in a nested drawing that is stretched. The choice of the axis is a checkbox
that the style sheet obeys: the page has no scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from dtj.cli.common.formatting import short_number
from dtj.cli.report.curves import Curve, Point
from dtj.cli.report.markup import safe

PLOT_HEIGHT: Final = 170

_MAX_CIRCLES: Final = 80
"""More would hide the line."""

_MAX_RATIO: Final = 100.0
"""Ratio of the largest to the smallest value from which a plot starts with a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """From the value to the percent of the height, and the values where lines are drawn."""

    place: Callable[[float], float]
    ticks: tuple[float, ...]


def plot(curves: Iterable[tuple[str, Curve]], *, number: int) -> str:
    """The curves of one quantity in one plot, each with the name of its run, which may be empty.

    A run without this quantity has a curve without points, so that each run keeps its colour in all plots.

    ``number`` is another one for each plot of the page.
    """
    named = tuple(curves)
    points = [point for _, curve in named for point in curve.everything]
    values = [point.value for point in points]
    linear = _drawn(named, points, _linear(min(values), max(values)), "linear")
    if min(values) <= 0 or max(values) < 2 * min(values):
        return linear
    checked = " checked" if max(values) >= _MAX_RATIO * min(values) else ""
    identity = f"axis-{number}"
    return (
        f'<input type="checkbox" class="axis" id="{identity}"{checked}><label class="axis" for="{identity}">'
        f"log axis</label>{linear}{_drawn(named, points, _logarithmic(min(values), max(values)), 'log')}"
    )


def _drawn(named: tuple[tuple[str, Curve], ...], points: list[Point], axis: _Axis, kind: str) -> str:
    first, last = min(point.step for point in points), max(point.step for point in points)
    width = max(last - first, 1)

    def x(step: int) -> float:
        return 100 * (step - first) / width

    levels = [(axis.place(tick), tick) for tick in axis.ticks]
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>' for y, _ in levels)
    labels = "".join(
        f'<text x="36" y="{y:.2f}%" dy="4" text-anchor="end">{short_value(tick)}</text>' for y, tick in levels
    )
    lines = "".join(_lines(curve, place, x, axis) for place, (_, curve) in enumerate(named))
    marks = "".join(_restarts(curve, x) for _, curve in named)
    circles = "".join(
        _circles(curve, title, place, x, axis, most=_MAX_CIRCLES // len(named))
        for place, (title, curve) in enumerate(named)
    )
    words = "; ".join(_summary(title, curve) for title, curve in named if curve.points)
    return (
        f'<div class="plot {kind}"><svg class="scale" height="{PLOT_HEIGHT}" role="presentation">{labels}</svg>'
        f'<svg height="{PLOT_HEIGHT + 22}" role="img" aria-label="{safe(words)}">'
        f'<svg x="0" y="0" width="100%" height="{PLOT_HEIGHT}" class="area">{grid}{marks}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" class="area">{lines}</svg>{circles}</svg>'
        f'<text x="0" y="{PLOT_HEIGHT + 18}">step {first}</text>'
        f'<text x="100%" y="{PLOT_HEIGHT + 18}" text-anchor="end">{last}</text></svg></div>'
    )


def _lines(curve: Curve, run: int, x: Callable[[int], float], axis: _Axis) -> str:
    kinds = [("redone", stretch) for stretch in curve.redone]
    kinds += [("trained", curve.points), ("held-out", curve.validation)]
    return "".join(
        f'<polyline class="{kind} run{run}" points="'
        f'{" ".join(f"{x(point.step):.2f},{axis.place(point.value):.2f}" for point in points)}"/>'
        for kind, points in kinds
        if len(points) > 1
    )


def _restarts(curve: Curve, x: Callable[[int], float]) -> str:
    return "".join(
        f'<line class="restart" x1="{x(step):.2f}%" x2="{x(step):.2f}%" y1="0" y2="100%">'
        f"<title>restarted after step {step}</title></line>"
        for step in curve.restarts
    )


def _circles(curve: Curve, title: str, run: int, x: Callable[[int], float], axis: _Axis, *, most: int) -> str:
    def circles(points: tuple[Point, ...], kind: str, radius: float) -> Iterator[str]:
        for point in points[:: max(1, ceil(len(points) / max(most, 1)))]:
            words = ", ".join(filter(None, (title, kind, _description(point))))
            yield (
                f'<circle class="{kind or "trained"} run{run}" cx="{x(point.step):.2f}%" '
                f'cy="{axis.place(point.value):.2f}%" r="{radius}"><title>{safe(words)}</title></circle>'
            )

    return "".join((*circles(curve.points, "", 2.5), *circles(curve.validation, "held-out", 3.5)))


def _summary(title: str, curve: Curve) -> str:
    first, last = curve.points[0], curve.points[-1]
    words = f"{curve.name}: {short_value(first.value)} at step {first.step}, {short_value(last.value)} at step "
    return (f"{title}, " if title else "") + f"{words}{last.step}"


def _description(point: Point) -> str:
    return f"{short_value(point.value)} at step {point.step}" + (
        f", {point.at:%H:%M:%S}" if point.at is not None else ""
    )


def short_value(value: float) -> str:
    """A metric's value in few digits: 0.0312, 1.25, 3.1k."""
    if value == 0:
        return "0"
    return f"{'-' if value < 0 else ''}{short_number(abs(value))}" if abs(value) >= 1 else f"{value:.3g}"


def _linear(low: float, high: float) -> _Axis:
    """Round bounds around the values."""
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    if high - low < 1e-12 * max(abs(high), 1e-30):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    size = 10 ** floor(log10((high - low) / 3))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (size * factor) <= 4)
    bottom, top = floor(low / step), ceil(high / step)
    ticks = tuple(step * number for number in range(bottom, top + 1))
    return _Axis(lambda value: 100 * (top * step - value) / ((top - bottom) * step), ticks)


def _logarithmic(low: float, high: float) -> _Axis:
    """Powers of ten around positive values; within few of them also 2 and 5 times each."""
    bottom, top = floor(log10(low)), ceil(log10(high))
    factors = (1, 2, 5) if top - bottom < 3 else (1,)
    round_values = [10.0**power * factor for power in range(bottom, top + 1) for factor in factors]
    lowest = max((value for value in round_values if value <= low), default=low)
    highest = min((value for value in round_values if value >= high), default=high)
    ticks = [value for value in round_values if lowest <= value <= highest]
    size = log10(highest) - log10(lowest)
    return _Axis(lambda value: 100 * (log10(highest) - log10(value)) / size, tuple(ticks[:: ceil(len(ticks) / 7)]))
