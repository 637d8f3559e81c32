"""Waiting: how long between two attempts, and the clock that measures it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

_LARGEST_EXPONENT = 32
"""Where the doubling stops for good, so that an outage of months cannot overflow a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times in seconds: ``base`` doubling up to ``cap``, each cut by up to half at random.

    Iterating starts again every time and never ends. It has no length on purpose: kopf takes the delays between
    its retries from such an object and would give up at the end of one.
    """

    base: float
    cap: float
    rng: random.Random | None = field(default=None, repr=False)
    """None for the process's own generator: whoever seeds that can repeat a run."""

    def delay(self, failures: int) -> float:
        """The time to wait after this number of failures in a row, counted from 1."""
        longest = min(self.cap, self.base * 2.0 ** min(max(failures, 1) - 1, _LARGEST_EXPONENT))
        uniform = random.uniform if self.rng is None else self.rng.uniform
        return longest * uniform(0.5, 1.0)

    def __iter__(self) -> Iterator[float]:
        return (self.delay(failures) for failures in itertools.count(1))


def loop_time() -> float:
    """Seconds since an arbitrary moment, by the clock of the running event loop."""
    return asyncio.get_running_loop().time()
