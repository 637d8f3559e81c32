"""Fewer calls while the API server answers 429 (Too Many Requests).

A refused call names the seconds until it may be made again. Its caller waits that long, but thousands of other callers
do not know of it. So all calls of a gateway wait, and go on at a pace: each refusal halves the pace, and each answer
raises it again, as TCP does with its window (AIMD: Chiu and Jain, Computer Networks and ISDN Systems 17(1), 1989).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dtj.kube.errors import TooManyRequests
from dtj.kube.fairness import FairSlots
from dtj.kube.waiting import loop_time

log = logging.getLogger(__name__)

DEFAULT_PAUSE_SECONDS: Final = 1.0
"""The pause after a refusal that names no time."""

SLOWEST: Final = 1.0
"""Calls a second at the slowest pace."""

FIRST_PACE: Final = 25.0
"""Calls a second after the first refusal: about as many as a client in Go makes at most by default."""

RAISED_BY: Final = 1.0
"""Calls a second by which each answer raises the pace."""

FULL_PACE: Final = 200.0
"""From this number of calls a second on, the pace is no limit any more."""

CALM_SECONDS: Final = 60.0
"""After so long without a refusal nothing is held back, also if there were few calls to raise the pace."""


class Throttle:
    """When the next call may be made. Nothing waits until the API server has refused a call."""

    def __init__(self) -> None:
        self._pace: float | None = None
        self._pause_until = 0.0
        self._next_at = 0.0
        self._slowed_at = 0.0

    @property
    def limited(self) -> bool:
        """Whether calls are held back."""
        return self._pace is not None and loop_time() < self._pause_until + CALM_SECONDS

    async def admitted(self) -> None:
        """Return when the next call may be made."""
        while (pace := self._current_pace()) is not None:
            now = loop_time()
            at = max(self._pause_until, self._next_at)
            if at <= now:
                self._next_at = now + 1.0 / pace
                return
            await asyncio.sleep(at - now)

    def refused(self, *, began: float, retry_after: float | None) -> None:
        """A call that began at that time (the loop's) was refused. One that began before a slow-down causes none."""
        pace = self._current_pace()
        pause = retry_after or DEFAULT_PAUSE_SECONDS
        self._pause_until = max(self._pause_until, loop_time() + pause)
        if pace is None:
            log.warning("the API server answers 429 (Too Many Requests): all calls wait %.0f s and go on slowly", pause)
            self._pace, self._slowed_at = FIRST_PACE, loop_time()
        elif began >= self._slowed_at:
            self._pace, self._slowed_at = max(SLOWEST, pace / 2), loop_time()

    def answered(self) -> None:
        """A call was answered."""
        pace = self._current_pace()
        if pace is not None and loop_time() >= self._pause_until:
            self._pace = pace + RAISED_BY
            self._current_pace()

    def _current_pace(self) -> float | None:
        """Calls a second; None without a limit."""
        if self._pace is not None and (self._pace >= FULL_PACE or not self.limited):
            self._pace = None
            log.info("the API server takes all calls again")
        return self._pace


class PacedSlots(FairSlots):
    """Slots whose holders wait while the API server refuses calls."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.throttle = Throttle()

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        """Hold a slot within the block, in which one call is made."""
        async with super().of(tenant):
            await self.throttle.admitted()
            began = loop_time()
            try:
                yield
            except TooManyRequests as error:
                self.throttle.refused(began=began, retry_after=error.retry_after)
                raise
            self.throttle.answered()
