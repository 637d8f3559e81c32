"""After how many steps the next copy in memory is due, and after how many seconds the next checkpoint in the directory,
so that they cost little. Standard library only.

A copy takes time from the loop, which reads the values, and from the processors, on which a thread writes them while
the next steps run. Both depend on the model and on the machine, as the steps do. So they are measured: short steps need
more of them between two copies than long ones.

A checkpoint in the directory costs what the loop waits for it. With a save of C seconds, and M seconds between two
losses, about sqrt(2 C M) seconds between two saves waste least (Young, CACM 17 (9), 1974); the higher orders of Daly
(FGCS 22 (3), 2006) matter where C is no small part of M.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FIRST_STEPS = 10
"""Between two copies until it is known what they cost, and at least."""
SHARE = 0.01
"""Of the training, which copies may cost, and checkpoints."""
_MOST_SHARE = 0.1
"""Of the training, which checkpoints may cost where a job is lost so often that more would be worth it."""
_SAMPLES = 4
"""Copies that are measured after the first, in which TensorFlow traces."""
_LEAST_SECONDS, _MOST_SECONDS = 10.0, 3600.0
"""Between two checkpoints, whatever they cost."""
_UNKNOWN_SECONDS = 24 * 3600.0
"""Between two losses of a job that had none."""
_SAVES = 100
"""The latest, whose cost counts."""


def seconds_between_saves(cost: float, losses: float) -> float:
    """How long to train between two checkpoints.

    Args:
        cost: seconds that the loop waits for one.
        losses: seconds between two losses of a replica; infinite: there was none.
    """
    known = losses < math.inf
    best = math.sqrt(2 * cost * (losses if known else _UNKNOWN_SECONDS))
    # Losses that are assumed justify no more than copies in memory may cost.
    return min(_MOST_SECONDS, max(_LEAST_SECONDS, best, cost / (_MOST_SHARE if known else SHARE)))


def describe_saves(seconds: float, cost: float, losses: float) -> str:
    """Why there are so many seconds between two checkpoints."""
    known = losses < math.inf
    often = f"this job lost a replica every {_span(losses)}" if known else "no loss is known: one a day is assumed"
    return f"checkpoints every {seconds:.0f} s: a save costs {_span(cost)}, and {often}"


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


class _Waiting:
    """What the loop waits for."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken = 0.0

    @contextmanager
    def taking(self) -> Iterator[None]:
        """While the loop waits for what belongs to a copy, or to a checkpoint."""
        began = self._clock()
        try:
            yield
        finally:
            self._taken += self._clock() - began


class CostOfSaves(_Waiting):
    """Measures the checkpoints of a training."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._saves: deque[float] = deque(maxlen=_SAVES)
        self._traced = False

    def begins(self) -> None:
        """What is taken from now on may belong to a checkpoint; what was taken before was for something else."""
        self._taken = 0.0

    def saved(self) -> float | None:
        """What a checkpoint costs, in seconds, now that another one is made; None after the first, which traces."""
        if self._traced:
            self._saves.append(self._taken)
        self._taken, self._traced = 0.0, True
        return statistics.median(self._saves) if self._saves else None


class CostOfCopies(_Waiting):
    """Measures the first copies of a training."""

    def __init__(self, *, processors: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        processors: that the steps and the thread that writes share.
        """
        super().__init__(clock=clock)
        self._processors = processors
        self._last = 0, clock()
        self._copies: list[float] = []
        self._steps: list[float] = []

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


def _span(seconds: float) -> str:
    """A time as a person says it."""
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def _rounded_up(number: float) -> int:
    """To 1, 2 or 5 with zeros."""
    unit = int(10 ** math.floor(math.log10(max(1.0, number))))
    return next(unit * digit for digit in (1, 2, 5, 10) if unit * digit >= number)
