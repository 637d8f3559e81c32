"""After how many steps the next copy in memory is due, so that all copies cost little. Standard library only.

A copy takes time from the loop, which reads the values, and from the processors, on which a thread writes them while
the next steps run. Both depend on the model and on the machine, as the steps do. So they are measured: short steps need
more of them between two copies than long ones.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FIRST_STEPS = 10
"""Between two copies until it is known what they cost, and at least."""
SHARE = 0.01
"""Of the training, which copies may cost."""
_SAMPLES = 4
"""Copies that are measured after the first, in which TensorFlow traces."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What copies cost."""

    copy_seconds: float
    """By which a copy makes the training longer."""
    step_seconds: float
    """That a step takes without copies."""

    def share(self, steps: int) -> float:
        """Of the training, with a copy after each of so many steps."""
        return self.copy_seconds / (self.copy_seconds + steps * self.step_seconds)

    @property
    def least_steps(self) -> int:
        """The fewest steps between two copies with which they cost no more than they may; a round number."""
        least = self.copy_seconds * (1 / SHARE - 1) / self.step_seconds
        return max(FIRST_STEPS, _rounded_up(least))

    def describe(self, steps: int) -> str:
        """What so many steps between two copies cost."""
        often = "step" if steps == 1 else f"{steps} steps"
        return (
            f"a copy in memory after every {often} costs {100 * self.share(steps):.1f} % of the training "
            f"({1e3 * self.copy_seconds:.1f} ms a copy, {1e3 * self.step_seconds:.1f} ms a step)"
        )


class CostOfCopies:
    """Measures the first copies of a training."""

    def __init__(self, *, processors: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        processors: that the steps and the thread that writes share.
        """
        self._processors = processors
        self._clock = clock
        self._last = 0, clock()
        self._taken = 0.0
        self._copies: list[float] = []
        self._steps: list[float] = []

    @contextmanager
    def taking(self) -> Iterator[None]:
        """While the loop waits for what belongs to a copy."""
        began = self._clock()
        try:
            yield
        finally:
            self._taken += self._clock() - began

    def copied(self, step: int, *, writing: float) -> Cost | None:
        """Notes that the copy of this step is read; what copies cost, once that is known, which is after as many of
        them on each task.

        Args:
            writing: CPU seconds that the copy before took to be written.
        """
        now, (step_before, before) = self._clock(), self._last
        taken, self._taken, self._last = self._taken, 0.0, (step, now)
        writing /= self._processors
        self._copies.append(taken + writing)
        self._steps.append((now - before - taken - writing) / max(1, step - step_before))
        if len(self._copies) <= _SAMPLES:
            return None
        # Others may need the machine for a moment.
        return Cost(
            copy_seconds=statistics.median(self._copies[1:]),
            step_seconds=max(1e-6, statistics.median(self._steps[1:])),
        )


def _rounded_up(number: float) -> int:
    """To 1, 2 or 5 with zeros."""
    unit = int(10 ** math.floor(math.log10(max(1.0, number))))
    return next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= number)
