"""NCCL's own log: what carries the gradients, which nothing else says, and its warnings.

The launcher has NCCL write it to a folder, passes its warnings on, and says the transport in the log; the program says
it in its progress. What NCCL is told by a user stays. Standard library only.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

log = logging.getLogger(__name__)

VARIABLE = "DTJ_NCCL_LOG"
"""The folder, with a file for each process."""
_OF_USERS = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
_EVERY_SECONDS = 1.0
_AT_ONCE = 1 << 20
"""Bytes that are read at a time."""
_CONNECTION = re.compile(
    r"NCCL INFO (?:Channel|Ring|Coll|CollNet) [0-9/]+ : .* via "
    r"(?P<kind>NET|P2P|SHM|COLLNET)/(?P<way>[^/\s][^/\n]*)(?P<rest>.*)"
)
_OLD_SHARED_MEMORY = "via direct shared memory", "via SHM/direct"
"""What NCCL up to 2.12 says, and what it says since."""
_BETWEEN_MACHINES = ("COLLNET", "NET")
"""Those of which the network matters."""
_WARNING = b"NCCL WARN"
_ORDER = (*_BETWEEN_MACHINES, "P2P", "SHM")
"""The order in which they are named."""


class _Lines:
    """What NCCL has written to a folder, of which each line is read once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._read: dict[str, int] = {}
        self._found: set[str] = set()

    def new_warnings(self) -> list[bytes]:
        """Reads what is there since the last time; those lines of it that warn."""
        warnings: list[bytes] = []
        for file in _files(self.folder):
            while lines := _whole_lines(file, self._read.get(file, 0)):
                self._read[file] = self._read.get(file, 0) + sum(map(len, lines))
                self._found.update(_transports(line.decode(errors="replace") for line in lines))
                warnings += [line for line in lines if _WARNING in line]
        return warnings

    def transport(self) -> str:
        """Such as `NET/IB/GDRDMA, P2P`: what NCCL's connections go by, those between machines first."""
        found = tuple(self._found)  # another thread may add to it
        return ", ".join(sorted(found, key=lambda one: (_ORDER.index(one.partition("/")[0]), one)))


class NcclLog:
    """The log of one task, over all starts of its program."""

    def __init__(self, environ: Mapping[str, str], *, gpus: int) -> None:
        """Args:
        gpus: of this task; without any, NCCL is not used.
        """
        self._lines: _Lines | None = None
        self._next = 0.0
        self._said = ""
        if gpus and not any(name in environ for name in _OF_USERS):
            with suppress(OSError):  # nowhere to write
                self._lines = _Lines(tempfile.mkdtemp(prefix="dtj-nccl-"))

    def begin(self) -> Mapping[str, str]:
        """The variables of the next start, which finds an empty folder."""
        if self._lines is None:
            return {}
        self.end()
        folder = self._lines.folder
        with suppress(OSError):
            os.mkdir(folder)
        self._lines, self._said = _Lines(folder), ""
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",  # WARN alone names no transport
            "NCCL_DEBUG_FILE": os.path.join(folder, "%p"),
            VARIABLE: folder,
        }

    def poll(self, warn: Callable[[bytes], object], *, at_once: bool = False) -> float | None:
        """Passes warnings on if it is time to look. Returns in how many seconds to come again; None if there is no log.

        Args:
            warn: gets each line of a warning.
        """
        if self._lines is None:
            return None
        left = self._next - time.monotonic()
        if left > 0 and not at_once:
            return left
        self._next = time.monotonic() + _EVERY_SECONDS
        for line in self._lines.new_warnings():
            warn(line)
        if (now := self._lines.transport()) != self._said:
            self._said = now
            log.info(f"gradients go by {now}")
        return _EVERY_SECONDS

    def end(self) -> None:
        """Removes the folder."""
        if self._lines is not None:
            shutil.rmtree(self._lines.folder, ignore_errors=True)


_lines_of = functools.lru_cache(maxsize=1)(_Lines)


def transport(environ: Mapping[str, str]) -> str:
    """What carries the gradients of this program; empty where it is not known."""
    folder = environ.get(VARIABLE)
    if not folder:
        return ""
    lines = _lines_of(folder)
    lines.new_warnings()
    return lines.transport()


def _transports(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if found := _CONNECTION.search(line.replace(*_OLD_SHARED_MEMORY)):
            network = f"/{found['way'].strip()}{'/GDRDMA' if 'GDRDMA' in found['rest'] else ''}"
            yield found["kind"] + (network if found["kind"] in _BETWEEN_MACHINES else "")


def _files(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    return []


def _whole_lines(path: str, begin: int) -> list[bytes]:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(begin)
        return [line for line in file.read(_AT_ONCE).splitlines(keepends=True) if line.endswith(b"\n")]
    return []
