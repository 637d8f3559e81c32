"""Waiting: how long between two attempts, and the clock that measures it."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

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

    def delay(self, failures: int, *, at_least: float | None = None) -> float:
        """The time to wait after this number of failures in a row, counted from 1; ``at_least`` is what a server asks
        for."""
        longest = min(self.cap, self.base * 2.0 ** min(max(failures, 1) - 1, _LARGEST_EXPONENT))
        return max(longest * random.uniform(0.5, 1.0), at_least or 0.0)

    def __iter__(self) -> Iterator[float]:
        return (self.delay(failures) for failures in itertools.count(1))


@dataclass(slots=True)
class Retry:
    """An attempt that failed, and is made again after a while."""

    failures: int = 0
    """In a row."""

    not_before: float = 0.0
    """By the clock of the event loop."""

    @property
    def wait(self) -> float:
        """Seconds until the next attempt; 0 where it may be made."""
        return max(0.0, self.not_before - loop_time())

    def failed(self, backoff: Backoff, *, at_least: float | None = None, at_most: float = math.inf) -> float:
        """Count a failure. Returns the seconds until the next attempt."""
        self.failures += 1
        delay = min(backoff.delay(self.failures, at_least=at_least), at_most)
        self.not_before = loop_time() + delay
        return delay

    def succeeded(self) -> None:
        """The next attempt is the first again, and may be made at once."""
        self.failures, self.not_before = 0, 0.0


def loop_time() -> float:
    """Seconds since an arbitrary moment, by the clock of the running event loop."""
    return asyncio.get_running_loop().time()
