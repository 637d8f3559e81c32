"""The deadlines of a program that cannot end itself while it is stuck: it writes them to a pipe, the launcher ends it.

TensorFlow waits for its peers in places where no thread of Python's runs: such a program neither notices that nothing
moves, nor answers a signal. So while it runs, it says until when it is alive. The variable `DTJ_DEADLINES` names the
pipe, as DESCRIPTOR:INODE. Each line, `UNTIL CODE STOP`, takes the place of the one before: after this moment of the
monotonic clock, in seconds, the program is stuck and ends with this exit code; if it is asked to stop and does not, it
ends with the code STOP. `-` stands for none.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from . import child

log = logging.getLogger(__name__)

VARIABLE = "DTJ_DEADLINES"
STOP_SECONDS = 1.0
"""For which a program that may be stuck can still leave by itself, when it is asked to stop."""
_CHUNK = 65536


class Deadlines:
    """Those of one start of a program."""

    def __init__(self) -> None:
        self._source, self._theirs = os.pipe()
        for end in (self._source, self._theirs):
            os.set_blocking(end, False)
        os.set_inheritable(self._theirs, True)
        self._begun = b""
        self._open = True
        self._until: float | None = None
        self._code: int | None = None
        self._stop: int | None = None
        self._asked_at: float | None = None
        self._killed = False

    @property
    def variables(self) -> Mapping[str, str]:
        """How the program finds the pipe."""
        return {VARIABLE: f"{self._theirs}:{os.fstat(self._theirs).st_ino}"}

    @property
    def sources(self) -> list[int]:
        """Where something may be read."""
        return [self._source] if self._open else []

    def hand_over(self) -> None:
        """Keeps the reading end alone, once the program has the other."""
        os.close(self._theirs)

    def read(self) -> None:
        """Takes what the program has written."""
        text = b""
        with suppress(BlockingIOError):
            text = os.read(self._source, _CHUNK)
            self._open = bool(text)
        *lines, self._begun = (self._begun + text).split(b"\n")
        with suppress(ValueError, IndexError):
            until, code, stop = lines[-1].decode().split()
            self._until = None if until == "-" else float(until)
            self._code, self._stop = (None if word == "-" else int(word) for word in (code, stop))

    def enforce(self, group: int, *, termination_requested: bool) -> float | None:
        """Kills a program that is stuck; returns the seconds until the next check, None where there is no deadline."""
        now = time.monotonic()
        if self._stop is not None and termination_requested:
            self._asked_at = self._asked_at or now
            return self._kill_after(self._asked_at + STOP_SECONDS - now, group, "asked to stop, and", self._stop)
        if self._until is not None and self._code is not None:
            return self._kill_after(self._until - now, group, "past its own deadline, and", self._code)
        return None

    def exit_code(self, code: int) -> int:
        """What the exit code of the program means: its deadline's, if that has ended it."""
        return self._code if self._killed and self._code is not None and code == 128 + signal.SIGKILL else code

    def close(self) -> None:
        """No program writes any more."""
        os.close(self._source)

    def _kill_after(self, left: float, group: int, why: str, code: int) -> float | None:
        if left > 0 or self._killed:
            return left if left > 0 else None
        log.warning(f"the program is {why} stuck: killing it; this is exit code {code}")
        self._killed, self._code = True, code
        child.signal_group(group, signal.SIGKILL)
        return None
