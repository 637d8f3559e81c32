"""What time it is, where this machine's clock may be wrong.

Most times from which a job's deadlines count are the API server's (creation, deletion), or were written by another
operator. An operator whose own clock is hours off would fail jobs at once, or never; so it goes by the API server's,
which sends the time in each of its answers (the header ``Date``, RFC 9110).

There may be several API servers, and one of their clocks may be wrong, too. So what most answers say counts.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

log = logging.getLogger(__name__)

MAX_DIFFERENCE: Final = timedelta(seconds=5)
"""A clock that differs by no more than this counts as right: an answer has whole seconds, and needs time to arrive."""

ANSWERS: Final = 16
"""The latest answers that count. Of those that agree, the one with the latest time arrived fastest."""


class ServerClock:
    """The machine's clock, or the API server's where they differ. Steps of the machine's clock do not move it."""

    def __init__(
        self,
        *,
        local: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._monotonic = monotonic
        self._starts: deque[datetime] = deque(maxlen=ANSWERS)
        """The server's time at the monotonic clock's zero, as each answer gives it."""

        self._likely: list[datetime] = []
        """The same, as most answers have it; several if as many say the one as the other."""

        self._differs = False

    def now(self) -> datetime:
        """An aware datetime."""
        local = self._local()
        if not self._likely:
            return local
        running = timedelta(seconds=self._monotonic())
        began = local - running
        # Where the answers are divided, this machine's clock decides between them.
        server = max(self._likely, key=lambda start: (abs(began - start) <= MAX_DIFFERENCE, start)) + running
        self._note(local - server)
        return server if self._differs else local

    def observe(self, date: str | None) -> None:
        """An answer has come, with this header; one that cannot be read says nothing."""
        try:
            sent_at = parsedate_to_datetime(date or "")
            self._starts.append(sent_at.astimezone(UTC) - timedelta(seconds=self._monotonic()))
        except (ValueError, OverflowError):
            return
        given = sorted(self._starts)
        # A slow answer has an earlier time: those that agree with one are a little before it.
        votes = {start: bisect_right(given, start) - bisect_left(given, start - MAX_DIFFERENCE) for start in given}
        most = max(votes.values())
        self._likely = [start for start, number in votes.items() if number == most]

    def _note(self, ahead: timedelta) -> None:
        differs = abs(ahead) > MAX_DIFFERENCE
        if differs and not self._differs:
            log.warning(
                "this machine's clock is %.0f s %s the API server's: set it; until then, the API server's time counts",
                abs(ahead.total_seconds()),
                "ahead of" if ahead > timedelta() else "behind",
            )
        elif self._differs and not differs:
            log.info("this machine's clock agrees with the API server's again")
        self._differs = differs
