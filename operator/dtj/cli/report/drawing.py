"""Bars over time and curves over steps as SVG. Pure.

Places along the width are percents, so that a drawing fills any width with letters of one size; what cannot be given
in percents, a line through points, lies in a nested drawing that is stretched.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import ceil, floor, log10
from typing import Final

from dtj.cli.common.formatting import short_number, short_time
from dtj.cli.report.curves import Curve, Point
from dtj.cli.report.history import Bar, History, Row
from dtj.cli.report.markup import safe

ROW_HEIGHT: Final = 18
PLOT_HEIGHT: Final = 170
_MAX_TICKS: Final = 5
_MAX_CIRCLES: Final = 80
"""More would hide the line."""

_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def timeline(history: History) -> str:
    """A row for each attempt and pod, one under the other, with the time since the beginning below."""
    span = history.span
    if span is None:
        return ""
    start, end = span
    seconds = max((end - start).total_seconds(), 1.0)
    ticks = list(_time_ticks(seconds))
    rows = "".join(_row(row, start, seconds, ticks) for row in history.rows)
    labels = "".join(
        f'<text x="{_percent(tick, seconds)}" y="13" text-anchor="{"start" if tick == 0 else "middle"}">'
        f"{short_time(tick) if tick else '0'}</text>"
        for tick in ticks
        if tick <= 0.96 * seconds
    )
    axis = f'<div class="name"></div><svg class="axis" height="18" role="presentation">{labels}</svg>'
    return f'<div class="timeline">{rows}{axis}</div>'


def _row(row: Row, start: datetime, seconds: float, ticks: list[float]) -> str:
    lines = "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in _places(ticks, seconds))
    bars = "".join(_bar(bar, start, seconds) for bar in row.bars)
    gone = ' <span class="gone">gone</span>' if row.gone else ""
    words = "; ".join(_description(bar) for bar in row.bars)
    label = safe(f"{row.name}: {words}")
    return (
        f'<div class="name">{safe(row.name)}{gone}</div>'
        f'<svg class="row" height="{ROW_HEIGHT}" role="img" aria-label="{label}">{lines}{bars}</svg>'
    )


def _bar(bar: Bar, start: datetime, seconds: float) -> str:
    left, width = (bar.start - start).total_seconds(), (bar.end - bar.start).total_seconds()
    # What is over in a moment must be seen too.
    shown = max(100 * width / seconds, 0.4)
    place = min(100 * left / seconds, 100 - shown)
    return (
        f'<rect class="{bar.look}" x="{place:.3f}%" y="3" width="{shown:.3f}%" height="{ROW_HEIGHT - 6}" rx="2">'
        f"<title>{safe(_description(bar))}</title></rect>"
    )


def _description(bar: Bar) -> str:
    return f"{bar.words}, {short_time((bar.end - bar.start).total_seconds())} from {bar.start:%H:%M:%S}"


def _time_ticks(seconds: float) -> Iterator[float]:
    step = next((size for size in _SECONDS if seconds / size <= _MAX_TICKS), 86400 * ceil(seconds / 86400 / _MAX_TICKS))
    yield from (float(step * number) for number in range(int(seconds // step) + 1))


def plot(curve: Curve) -> str:
    """One curve over the steps. The part before a restart is paler than what came after it."""
    points = curve.points
    last = max(point.step for point in points)
    first = min(point.step for point in points)
    low, high, heights = _axis(min(point.value for point in points), max(point.value for point in points))
    width = max(last - first, 1)

    def x(point: Point) -> float:
        return 100 * (point.step - first) / width

    def y(value: float) -> float:
        return 100 * (high - value) / (high - low)

    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{y(h):.2f}%" y2="{y(h):.2f}%"/>' for h in heights)
    labels = "".join(f'<text x="36" y="{y(h):.2f}%" dy="4" text-anchor="end">{short_value(h)}</text>' for h in heights)
    lines = "".join(
        f'<polyline class="{"earlier" if place < len(curve.runs) else "line"}" '
        f'points="{" ".join(f"{x(point):.2f},{y(point.value):.2f}" for point in run)}"/>'
        for place, run in enumerate(curve.runs, start=1)
    )
    circles = "".join(
        f'<circle cx="{x(point):.2f}%" cy="{y(point.value):.2f}%" r="2.5"><title>{_value_told(point)}</title></circle>'
        for point in points[:: ceil(len(points) / _MAX_CIRCLES)]
    )
    title = f"{curve.name}: {short_value(points[0].value)} at step {points[0].step}, "
    title += f"{short_value(points[-1].value)} at step {points[-1].step}"
    return (
        f'<div class="plot"><svg class="scale" height="{PLOT_HEIGHT}" role="presentation">{labels}</svg>'
        f'<svg height="{PLOT_HEIGHT + 22}" role="img" aria-label="{safe(title)}">'
        f'<svg x="0" y="0" width="100%" height="{PLOT_HEIGHT}" class="area">{grid}'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" class="area">{lines}</svg>{circles}</svg>'
        f'<text x="0" y="{PLOT_HEIGHT + 18}">step {first}</text>'
        f'<text x="100%" y="{PLOT_HEIGHT + 18}" text-anchor="end">{last}</text></svg></div>'
    )


def _value_told(point: Point) -> str:
    return f"{short_value(point.value)} at step {point.step}" + (
        f", {point.at:%H:%M:%S}" if point.at is not None else ""
    )


def short_value(value: float) -> str:
    """A metric's value in few digits: 0.0312, 1.25, 3.1k."""
    if value == 0:
        return "0"
    return f"{'-' if value < 0 else ''}{short_number(abs(value))}" if abs(value) >= 1 else f"{value:.3g}"


def _axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Round bounds around the values, and the round values where lines are drawn."""
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    if high - low < 1e-12 * max(abs(high), 1e-30):
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    size = 10 ** floor(log10((high - low) / 3))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (size * factor) <= 4)
    bottom, top = floor(low / step), ceil(high / step)
    return bottom * step, top * step, [step * number for number in range(bottom, top + 1)]


def _places(ticks: list[float], seconds: float) -> Iterator[str]:
    return (_percent(tick, seconds) for tick in ticks)


def _percent(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.3f}%"
