"""The process that a task runs in, as each of its parts finds it, and how long it took to start.

Must not import TensorFlow.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.parsing import Config
from dtj_trainer.process.sigterm import Termination

_CLOCK = time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC


class Startup:
    """A stopwatch that runs from the start of the process, or from its fork by the launcher, to the first steps."""

    def __init__(self, *, clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK)) -> None:
        self._clock = clock
        self._began = self._last = _born() or clock()
        self._laps: list[tuple[str, float]] = []

    def lap(self, name: str) -> None:
        """Notes that the time since the last lap went into this."""
        now = self._clock()
        self._laps.append((name, now - self._last))
        self._last = now

    def summary(self) -> str:
        """`start 4.1 s: python 0.1, import 2.3, gate 0.4, strategy 0.1, data 0.2, build 0.5, first steps 0.5`"""
        laps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self._laps)
        return f"start {self._last - self._began:.1f} s: {laps}"


def _born() -> float | None:
    """When this process began, in seconds since the machine did; None where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """This task, where its progress is shown, whether it was asked to stop, and how long it took to start."""

    config: Config
    progress_store: ProgressStore
    termination: Termination
    startup: Startup = field(default_factory=Startup)

    current: ClassVar[Self | None] = None
    """That of the script or session that runs in this process; None in any other program."""
