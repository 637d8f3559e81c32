"""Passes the program's output on: every byte, line by line. Keeps the last lines.

The output goes through the launcher because the last lines of a container belong into the pod's status, and only a
process that reads the output knows them. If standard output and error are one file, they share one pipe, so that their
lines keep their order. If they are two files, a line of one does not break a line of the other in a common log.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Mapping
from contextlib import suppress

from . import logs
from .logs import LogOptions

log = logging.getLogger(__name__)

_CHUNK = 65536
_LONGEST_LINE = 65536
"""A line that is longer goes on in parts."""
_HELD_SECONDS = 0.2
"""For how long the beginning of a line waits for its end."""
TAIL_BYTES = 4096
"""What Kubernetes takes of a termination message."""


class Tail:
    """The last lines, as many bytes as a termination message holds."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, text: bytes) -> None:
        """Remembers what was reported."""
        self._kept = (self._kept + text)[-2 * TAIL_BYTES :]

    def text(self) -> str:
        """The last lines, beginning with a whole one where there is room for one."""
        kept = self._kept.strip()
        last = kept[-TAIL_BYTES:]
        if len(last) < len(kept) and b"\n" in last:
            last = last.partition(b"\n")[2]
        # What is no UTF-8 must not become longer than it was.
        return last.decode(errors="replace").encode(errors="replace")[-TAIL_BYTES:].decode(errors="ignore")


class _Stream:
    """One pipe from the program, and where what comes through it goes."""

    def __init__(self, source: int, sink: int, tail: Tail) -> None:
        self.source = source
        self._sink = sink
        self._tail = tail
        self._held = b""
        self._held_since = 0.0

    def read(self) -> bool:
        """Passes on what is there; False at the end."""
        chunk = os.read(self.source, _CHUNK)
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline or not chunk:
            self._pass_on(self._held + whole + newline)
            self._held = b""
        if rest:
            self._held_since = self._held_since if self._held else time.monotonic()
            self._held += rest
            if len(self._held) > _LONGEST_LINE:
                self.release(at_once=True)
        return bool(chunk)

    def release(self, *, at_once: bool = False) -> float | None:
        """Passes on the beginning of a line whose end does not come; else says in how many seconds to look again."""
        if not self._held:
            return None
        left = self._held_since + _HELD_SECONDS - time.monotonic()
        if left > 0 and not at_once:
            return left
        self._pass_on(self._held)
        self._held = b""
        return None

    def _pass_on(self, text: bytes) -> None:
        self._tail.add(text)
        write(self._sink, text)


class Output:
    """The pipes of one start of the program."""

    def __init__(self, tail: Tail) -> None:
        joined = os.path.sameopenfile(1, 2)
        sinks = [1] if joined else [1, 2]
        pipes = [os.pipe() for _ in sinks]
        self.for_child = (pipes[0][1], pipes[-1][1])
        """What becomes the program's standard output and error."""
        self._streams = {ours: _Stream(ours, sink, tail) for (ours, _), sink in zip(pipes, sinks)}

    def hand_over(self) -> None:
        """Keeps the reading ends alone, once the program has the others."""
        for theirs in set(self.for_child):
            os.close(theirs)

    @property
    def sources(self) -> list[int]:
        """Where something may be read."""
        return list(self._streams)

    def read(self, source: int) -> None:
        """Passes on what is there; at the end, this source is none any more."""
        if not self._streams[source].read():
            del self._streams[source]
            os.close(source)

    def release(self) -> float | None:
        """Passes on lines that were begun a while ago; when to look again, in seconds."""
        waits = [wait for wait in (stream.release() for stream in self._streams.values()) if wait is not None]
        return min(waits) if waits else None

    def finish(self, seconds: float) -> None:
        """Passes on the rest, but waits no longer than so for who still holds a pipe."""
        until = time.monotonic() + seconds
        while self._streams and time.monotonic() < until:
            ready, _, _ = select.select(self.sources, [], [], max(0.0, until - time.monotonic()))
            for source in ready:
                self.read(source)
        for source, stream in self._streams.items():
            stream.release(at_once=True)
            os.close(source)
        self._streams = {}


def write(sink: int, text: bytes) -> None:
    """Writes all of it, however slow the reader is; nothing, where nobody can read any more."""
    left = memoryview(text)
    while left:
        try:
            left = left[os.write(sink, left) :]
        except BlockingIOError:
            select.select([], [sink], [])
        except OSError:
            return


def configure_logs(options: LogOptions, environ: Mapping[str, str]) -> None:
    """Has the launcher's own lines go to standard error: standard output is the program's."""
    logs.configure(
        __package__ or "dtj_launch",
        options,
        plain=logs.PlainFormatter("dtj-launch", always=True),
        context=logs.context_of(environ),
        write=lambda _, text: write(2, text.encode(errors="replace")),
    )


class TerminationMessage:
    """The file that Kubernetes reads a container's last words from; a program may write there itself."""

    def __init__(self, given: str | None) -> None:
        self._path = given or "/dev/termination-log"
        self._there = bool(given) or os.access(self._path, os.W_OK)

    def forget(self) -> None:
        """What was written before is not the end that counts."""
        if self._there and os.path.exists(self._path):
            with suppress(OSError), open(self._path, "wb"):
                pass

    def leave(self, text: str) -> None:
        """Writes them, unless the program has written its own."""
        if not self._there or not text:
            return
        try:
            with open(self._path, "ab") as file:
                if file.tell() == 0:
                    file.write(text.encode(errors="replace")[-TAIL_BYTES + 1 :] + b"\n")
        except OSError as error:
            log.warning(f"last words not written to {self._path}: {error.strerror}")
