"""Numbers, times, counts and paths as people like to read them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dtj.api.status import RestartCounts

_NUMBERS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def short_number(value: float) -> str:
    """About three digits: 7.25, 843, 12.3k, 1.2M."""
    for size, unit in _NUMBERS:
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def short_time(seconds: float) -> str:
    """9s, 1m02s, 3h05m, 2d04h."""
    whole = max(0, round(seconds))
    for size, unit, below, small in _TIMES:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole}s"


def counted(number: int, noun: str) -> str:
    """1 worker, 2 workers; ``ps`` and words like it stay as they are."""
    return f"{number} {noun}" if number == 1 or noun.endswith("s") else f"{number} {noun}s"


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def shown_path(path: Path, *, base: Path) -> str:
    """Relative to ``base`` where it lies below it."""
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def restarts_by_class(counts: RestartCounts) -> tuple[tuple[str, int], ...]:
    """The classes of failures that caused restarts, each with its number."""
    by_class = (
        ("error", counts.user),
        ("out of memory", counts.out_of_memory),
        ("preemption", counts.preemption),
        ("disruption", counts.disruption),
    )
    return tuple((name, number) for name, number in by_class if number)


def restarts(counts: RestartCounts) -> str:
    """``3 (2 error, 1 preemption)``."""
    parts = ", ".join(f"{number} {name}" for name, number in restarts_by_class(counts))
    return f"{counts.total} ({parts})" if parts else str(counts.total)
