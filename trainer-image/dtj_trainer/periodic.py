"""When something is due, by the clock or by the step, and what a worker's own part of a step takes.

Standard library only.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from dtj_launch.progress import Meter


class ComputeTimer:
    """How long a step takes without the time in which this worker waits for the others."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last, self._waited, self._own = clock(), 0.0, 0.0
        # Counts from the first mark on.
        self._meter = Meter(batch=1, step=0, clock=lambda: self._own)

    def mark(self, step: int, *, waited: float) -> float | None:
        """Notes that this many steps are done; the seconds of the own part of one of the last, once that is known.

        Args:
            waited: seconds, in all so far.
        """
        now = self._clock()
        passed = now - self._last
        # The graph reads the time of day, which can be set.
        self._own += passed - min(max(waited - self._waited, 0.0), passed)
        self._last, self._waited = now, waited
        self._meter.mark(step)
        rate = self._meter.steps_per_second
        return round(1 / rate, 6) if rate else None


class Every:
    """Is due at most once in each period; the first ends one period from now."""

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        """Of a period, also of the one that has begun."""
        self._clock = clock
        self._last = clock()

    def due(self) -> bool:
        """Whether a period is over; if so the next one begins. Never, without a period."""
        if self.seconds is None or self._clock() - self._last < self.seconds:
            return False
        self._last = self._clock()
        return True


@dataclass(frozen=True)
class EverySteps:
    """Something that is due after each `steps` steps, and after the last."""

    steps: int | None
    """None: after the last step alone."""
    total_steps: int = sys.maxsize
    """The last step, if it is known."""
    shift: int = 0
    """What is added to a step before it is divided: see `Course`."""

    def steps_until_due(self, step: int) -> int:
        """Steps until the next one after which it is due."""
        left = self.total_steps - step
        return min(left, self.steps - (step + self.shift) % self.steps) if self.steps else left

    def is_due(self, step: int) -> bool:
        """Whether it is due after this step."""
        return self.was_due(step - 1, step)

    def was_due(self, before: int, step: int) -> bool:
        """Whether it is due after one of the steps after `before`, up to `step`."""
        if step >= self.total_steps or self.steps is None:
            return step >= self.total_steps
        return (step + self.shift) // self.steps > (before + self.shift) // self.steps
