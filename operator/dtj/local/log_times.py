"""When the lines of a replica's log were written.

A process writes to its log itself, and no line has a time. So the runner notes how far each log has grown, and when.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

from dtj.local.objects import timestamp
from dtj.local.run_directory import RunDirectory, append_privately

INTERVAL: Final = 0.1
"""Seconds between two looks at the logs."""

MIN_SECONDS: Final = 1.0
"""Between two notes about one log: a program that prints without end costs 100 kB an hour."""


def times_file(log: Path) -> Path:
    """Where the times of a log are: a line for each note, with the size of the log and the time."""
    return log.with_name(f".{log.stem}.times")


@dataclass(slots=True)
class LogTimes:
    """Notes the growth of all logs of a run; :meth:`run` keeps looking, :meth:`note` looks once."""

    directory: RunDirectory
    _known: dict[Path, tuple[int, float]] = field(default_factory=dict)

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            self.note(at_least=MIN_SECONDS)
            await asyncio.sleep(INTERVAL)

    def note(self, *, at_least: float = 0.0) -> None:
        """Note each log that has grown, if the last note about it is ``at_least`` this many seconds old."""
        for log in self.directory.replica_logs():
            now = monotonic()
            known, then = self._known.get(log, (0, now - MIN_SECONDS))
            size = log.stat().st_size
            if size > known and now - then >= at_least:
                with append_privately(times_file(log)) as file:
                    file.write(f"{size} {timestamp()}\n".encode())
                self._known[log] = (size, now)


@dataclass(frozen=True, slots=True)
class WrittenTimes:
    """The notes about one log: ``stamps[n]`` is when it had grown to ``sizes[n]`` bytes."""

    sizes: tuple[int, ...] = ()
    stamps: tuple[str, ...] = ()

    def at(self, end: int) -> str:
        """When the line that ends at byte ``end`` was there; empty if that is not known."""
        place = bisect_left(self.sizes, end)
        return self.stamps[place] if place < len(self.stamps) else ""


def read_times(log: Path) -> WrittenTimes:
    """The notes about a log; none if there is no file of them. What is no note is left out."""
    notes = [*_notes(times_file(log))]
    return WrittenTimes(tuple(size for size, _ in notes), tuple(stamp for _, stamp in notes))


def _notes(file: Path) -> Iterator[tuple[int, str]]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        size, _, stamp = line.partition(" ")
        if size.isdecimal() and stamp:
            yield int(size), stamp
