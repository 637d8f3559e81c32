"""Ends a task whose loop, which is the user's own, finishes no step for too long. Imports TensorFlow.

What a step is, only the user knows: it may be an epoch of an hour. So without `--stall-timeout` a step may also take
ten times as long as the longest one before, and the first one as long as it takes.
"""

import math
import time
from collections.abc import Callable

from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.stall_watch import ANSWER_SECONDS, TALK_SECONDS, State, TaskWatch, end_stalled

_LONGER_AT_MOST = 10.0


class LoopWatch(TaskWatch):
    """Watches nothing before `begin`, and after `pause`."""

    ends_stuck_python = False

    def __init__(
        self, config: Config, state: Callable[[], State], *, kind: str, first_seconds: float = math.inf
    ) -> None:
        """Args:
        state: how far this task is.
        kind: see `end_stalled`.
        first_seconds: what the first step may take without `--stall-timeout`.
        """
        super().__init__(config, "no step was finished", config.stall_timeout)
        self._state = state
        self._kind = kind
        self._first_seconds = first_seconds
        self._longest = 0.0
        self._since = time.monotonic()
        self._on = self._watches = False

    def begin(self) -> None:
        """A step begins. The first one traces and compiles, on all workers."""
        self._on, self._since = True, time.monotonic()
        if self._longest:
            self._watches = True
            self.feed()
            return
        given = max(self.config.stall_timeout, self.config.start_timeout)
        first = given if self.config.stall_timeout_given else self._first_seconds
        self._watches = first < math.inf
        if self._watches:
            self.feed(first)

    def done(self) -> None:
        """A step is done, and the next one begins."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since)
        self._since = now
        if not self.config.stall_timeout_given:
            self.seconds = max(self.config.stall_timeout, _LONGER_AT_MOST * self._longest)
        if self._on:
            self._watches = True
            self.feed()

    def moved(self, *, may_take: float = 0.0) -> None:
        """The step goes on.

        Args:
            may_take: seconds that what comes now may take in addition.
        """
        if self._watches:
            self.feed(self.seconds + may_take)

    def pause(self) -> None:
        """No step is under way."""
        self._on = self._watches = False
        self.rest()

    def end_late(self) -> None:
        """Ends the process, and names the task that all wait for."""
        self.ends_within(TALK_SECONDS)
        # Others may have measured another longest step.
        later = 0.0 if self.config.stall_timeout_given else self.seconds / _LONGER_AT_MOST
        what = f"{self.what} for {self.seconds:.4g} s (--stall-timeout)"
        end_stalled(self.config, what, self._state(), kind=self._kind, answer_seconds=max(ANSWER_SECONDS, later))
