"""Stretches of time and what they mean: the words that the timeline is made of. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Look(StrEnum):
    """What a bar means, and the class of its style."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    """After the training, or between its steps: evaluating, exporting, saving before it stops."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended on request, or gone without a record."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which something was in one state, in words: ``exited with code 3``."""

    start: datetime
    end: datetime
    look: Look
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line: an attempt or a pod. ``gone`` where it is drawn from events alone."""

    name: str
    bars: tuple[Bar, ...]
    gone: bool = False

    @property
    def start(self) -> datetime:
        return min(bar.start for bar in self.bars)

    @property
    def end(self) -> datetime:
        return max(bar.end for bar in self.bars)

    @property
    def failed(self) -> bool:
        return any(bar.look is Look.FAILED for bar in self.bars)


@dataclass(frozen=True, slots=True)
class History:
    """All rows, and how many more there would have been.

    ``pauses`` are the stretches between two starts of a run: they take no room on the line of time. ``restarts`` are
    the moments at which the job, or the run, began once more.
    """

    rows: tuple[Row, ...]
    left_out: int = 0
    pauses: tuple[tuple[datetime, datetime], ...] = ()
    restarts: tuple[datetime, ...] = ()

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From the first moment to the last; None where nothing is known."""
        return (min(row.start for row in self.rows), max(row.end for row in self.rows)) if self.rows else None

    def elapsed(self, moment: datetime) -> float:
        """Seconds from the first moment to this one, without the pauses."""
        span = self.span
        assert span is not None, "there is a moment"
        paused = (max(0.0, (min(moment, end) - start).total_seconds()) for start, end in self.pauses)
        return (moment - span[0]).total_seconds() - sum(paused)

    @property
    def seconds(self) -> float:
        """How long all of it took, without the pauses."""
        span = self.span
        return self.elapsed(span[1]) if span is not None else 0.0
