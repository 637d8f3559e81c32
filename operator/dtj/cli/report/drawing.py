"""Bars over time as SVG. Pure.

Places along the width are percents, so that a drawing fills any width with letters of one size.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import ceil
from typing import Final

from dtj.cli.common.formatting import short_time
from dtj.cli.report.look import Bar, History, Look, Row
from dtj.cli.report.markup import safe

ROW_HEIGHT: Final = 18
_MAX_TICKS: Final = 5
_ENDS: Final = (Look.SUCCEEDED, Look.FAILED, Look.STOPPED)

_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def timeline(history: History) -> str:
    """A row for each attempt and pod, one under the other, with the time since the beginning below.

    The time between two starts of a run is left out; a line marks the place.
    """
    if history.span is None:
        return ""
    seconds = max(history.seconds, 1.0)
    ticks = list(_time_ticks(seconds))
    rows = "".join(_row(row, history, seconds, ticks) for row in history.rows)
    labels = "".join(
        f'<text x="{_percent(tick, seconds)}" y="13" text-anchor="{"start" if tick == 0 else "middle"}">'
        f"{short_time(tick) if tick else '0'}</text>"
        for tick in ticks
        if tick <= 0.96 * seconds
    )
    axis = f'<div class="name"></div><svg class="axis" height="18" role="presentation">{labels}</svg>'
    return f'<div class="timeline">{rows}{axis}</div>'


def _row(row: Row, history: History, seconds: float, ticks: list[float]) -> str:
    lines = "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="100%"/>' for x in _places(ticks, seconds))
    pauses = "".join(_pause(start, end, history, seconds) for start, end in history.pauses)
    bars = "".join(_bar(bar, history, seconds) for bar in row.bars)
    gone = ' <span class="gone">gone</span>' if row.gone else ""
    words = "; ".join(_description(bar) for bar in row.bars)
    label = safe(f"{row.name}: {words}")
    return (
        f'<div class="name">{safe(row.name)}{gone}</div>'
        f'<svg class="row" height="{ROW_HEIGHT}" role="img" aria-label="{label}">{lines}{bars}{pauses}</svg>'
    )


def _pause(start: datetime, end: datetime, history: History, seconds: float) -> str:
    x = _percent(history.elapsed(start), seconds)
    words = f"not running for {short_time((end - start).total_seconds())} from {start:%H:%M:%S}"
    return f'<line class="restart" x1="{x}" x2="{x}" y1="0" y2="100%"><title>{safe(words)}</title></line>'


def _bar(bar: Bar, history: History, seconds: float) -> str:
    left, width = history.elapsed(bar.start), (bar.end - bar.start).total_seconds()
    # What is over in a moment must be seen too; an end is a moment, and must be seen best.
    shown = max(100 * width / seconds, 0.9 if bar.look in _ENDS else 0.4)
    place = min(100 * left / seconds, 100 - shown)
    return (
        f'<rect class="{bar.look}" x="{place:.3f}%" y="3" width="{shown:.3f}%" height="{ROW_HEIGHT - 6}" rx="2">'
        f"<title>{safe(_description(bar))}</title></rect>"
    )


def _description(bar: Bar) -> str:
    seconds = (bar.end - bar.start).total_seconds()
    return f"{bar.words}, " + (f"{short_time(seconds)} from " if seconds else "at ") + f"{bar.start:%H:%M:%S}"


def _time_ticks(seconds: float) -> Iterator[float]:
    step = next((size for size in _SECONDS if seconds / size <= _MAX_TICKS), 86400 * ceil(seconds / 86400 / _MAX_TICKS))
    yield from (float(step * number) for number in range(int(seconds // step) + 1))


def _places(ticks: list[float], seconds: float) -> Iterator[str]:
    return (_percent(tick, seconds) for tick in ticks)


def _percent(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.3f}%"
