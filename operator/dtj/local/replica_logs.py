"""The logs of the replicas of a run on this machine, line by line, with the times that the runner has noted.

A process writes to its log itself, and no line has a time. So the runner notes how far each log has grown, and when.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

from dtj.api.job import parse_time
from dtj.api.printable import one_line
from dtj.api.spec import Role
from dtj.kube.pod_logs import MAX_LOG_LINE_BYTES, StampedLine
from dtj.local.objects import timestamp
from dtj.local.run_directory import RunDirectory, append_privately

# -- when lines were written ------------------------------------------------------------------------------------

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


# -- lines -----------------------------------------------------------------------------------------------------------

_REPLICA: Final = re.compile(rf"({'|'.join(Role)})-(\d+)")
_ORDER: Final = {str(role): place for place, role in enumerate(Role)}
_CHUNK: Final = 2**16


@dataclass(slots=True)
class ReplicaLog:
    """The log of one replica, which holds the output of all its processes, one after the other.

    :meth:`read` gives each line once.
    """

    role: str
    index: int
    file: Path
    _place: int = 0
    _begun: bytes = b""
    _times: WrittenTimes = field(default_factory=WrittenTimes)

    @property
    def title(self) -> str:
        """``worker-0``."""
        return f"{self.role}-{self.index}"

    def read(self, *, whole: bool = True) -> Iterator[StampedLine]:
        """The lines that were not read yet; with ``whole`` also a last one without an end. Raises OSError."""
        self._times = read_times(self.file)
        with self.file.open("rb") as file:
            file.seek(self._place)
            while chunk := file.read(_CHUNK):
                yield from self._lines(chunk)
        if whole and self._begun:
            line, self._begun = self._begun, b""
            yield self._line(line, self._place)

    def _lines(self, chunk: bytes) -> Iterator[StampedLine]:
        end = self._place
        self._place += len(chunk)
        *ended, begun = chunk.split(b"\n")
        for part in ended:
            end += len(part) + 1
            line, self._begun = self._begun + part, b""
            yield self._line(line, end)
        self._begun = (self._begun + begun)[:MAX_LOG_LINE_BYTES]

    def _line(self, line: bytes, end: int) -> StampedLine:
        """The line; if it is newer than the newest note about its log, it was written just now."""
        stamp = self._times.at(end) or (timestamp() if self._times.sizes else "")
        return StampedLine(stamp, parse_time(stamp), line[:MAX_LOG_LINE_BYTES].decode(errors="replace"))


def replica_logs(directory: RunDirectory) -> tuple[ReplicaLog, ...]:
    """The logs of the replicas that have written anything, by role as TF_CONFIG orders them, and index."""
    found = (
        ReplicaLog(name[1], int(name[2]), file)
        for file in directory.replica_logs()
        if (name := _REPLICA.fullmatch(file.stem)) is not None
    )
    return tuple(sorted(found, key=lambda log: (_ORDER[log.role], log.index)))


def last(lines: Iterator[StampedLine], number: int | None) -> Iterator[StampedLine]:
    """The last lines; all of them for None."""
    return lines if number is None else iter(deque(lines, maxlen=number))


# -- warnings --------------------------------------------------------------------------------------------------------

PREFIX: Final = "warning: "
"""How the format ``plain`` of trainer and launcher begins such a line. TensorFlow's own begin otherwise."""

SHOWN: Final = 3
_MAX_CHARACTERS: Final = 600


def warnings_of(logs: Iterable[ReplicaLog]) -> tuple[str, ...]:
    """The first warnings of these logs, each once, whichever replicas wrote it, and how many more there are."""
    found: dict[str, None] = {}
    for log in logs:
        with suppress(OSError):
            found |= {
                one_line(line.text.removeprefix(PREFIX), _MAX_CHARACTERS): None
                for line in log.read()
                if line.text.startswith(PREFIX)
            }
    shown = [*found][:SHOWN]
    more = len(found) - len(shown)
    return (*shown, f"{more} more in the logs") if more else tuple(shown)
