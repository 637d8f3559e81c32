"""The logs of the replicas of a run on this machine, line by line, with the times that the runner has noted."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dtj.api.spec import Role
from dtj.kube.pod_logs import MAX_LOG_LINE_BYTES
from dtj.local.log_times import WrittenTimes, read_times
from dtj.local.run_directory import RunDirectory

_REPLICA: Final = re.compile(rf"({'|'.join(Role)})-(\d+)")
_ORDER: Final = {str(role): place for place, role in enumerate(Role)}
_CHUNK: Final = 2**16


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """A line, and when it was written; ``stamp`` is empty if that is not known."""

    stamp: str
    text: str


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

    def read(self, *, whole: bool = True) -> Iterator[WrittenLine]:
        """The lines that were not read yet; with ``whole`` also a last one without an end. Raises OSError."""
        self._times = read_times(self.file)
        with self.file.open("rb") as file:
            file.seek(self._place)
            while chunk := file.read(_CHUNK):
                yield from self._lines(chunk)
        if whole and self._begun:
            line, self._begun = self._begun, b""
            yield self._line(line, self._place)

    @property
    def timed(self) -> bool:
        """Whether the runner has recorded times for the part of this log that was read."""
        return bool(self._times.sizes)

    def _lines(self, chunk: bytes) -> Iterator[WrittenLine]:
        end = self._place
        self._place += len(chunk)
        *ended, begun = chunk.split(b"\n")
        for part in ended:
            end += len(part) + 1
            line, self._begun = self._begun + part, b""
            yield self._line(line, end)
        self._begun = (self._begun + begun)[:MAX_LOG_LINE_BYTES]

    def _line(self, line: bytes, end: int) -> WrittenLine:
        return WrittenLine(self._times.at(end), line[:MAX_LOG_LINE_BYTES].decode(errors="replace"))


def replica_logs(directory: RunDirectory) -> tuple[ReplicaLog, ...]:
    """The logs of the replicas that have written anything, by role as TF_CONFIG orders them, and index."""
    found = (
        ReplicaLog(name[1], int(name[2]), file)
        for file in directory.replica_logs()
        if (name := _REPLICA.fullmatch(file.stem)) is not None
    )
    return tuple(sorted(found, key=lambda log: (_ORDER[log.role], log.index)))


def last(lines: Iterator[WrittenLine], number: int | None) -> Iterator[WrittenLine]:
    """The last lines; all of them for None."""
    return lines if number is None else iter(deque(lines, maxlen=number))
