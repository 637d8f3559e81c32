"""Ends a task whose loop, which is the user's own, finishes no step for too long. Imports TensorFlow.

What a step is, only the user knows: it may be an epoch of an hour. So without `--stall-timeout` a step may also take
ten times as long as the longest one before, and the first one as long as it takes.
"""

import math
import threading
import time
from collections.abc import Callable

from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.stall_watch import ANSWER_SECONDS, State, end_stalled

_LOOK_SECONDS = 0.5
_LONGER_AT_MOST = 10.0


class LoopWatch:
    """Looks from a thread of its own how long nothing moved; watches nothing before `begin`, and after `pause`."""

    def __init__(
        self, config: Config, state: Callable[[], State], *, kind: str, first_seconds: float = math.inf
    ) -> None:
        """Args:
        state: how far this task is.
        kind: see `end_stalled`.
        first_seconds: what the first step may take without `--stall-timeout`.
        """
        self._config = config
        self._state = state
        self._kind = kind
        self._first_seconds = first_seconds
        self._on = False
        self._longest = 0.0
        self._since = time.monotonic()
        self._until = math.inf
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A step begins. The first one traces and compiles, on all workers."""
        self._on, self._since = True, time.monotonic()
        if self._longest:
            self.moved()
            return
        given = max(self._config.stall_timeout, self._config.start_timeout)
        self._watch_until(self._since + (given if self._config.stall_timeout_given else self._first_seconds))

    def done(self) -> None:
        """A step is done, and the next one begins."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since)
        self._since = now
        self.moved()

    def moved(self, *, may_take: float = 0.0) -> None:
        """The step goes on.

        Args:
            may_take: seconds that what comes now may take in addition.
        """
        first = self._until == math.inf and not self._longest
        if self._on and not first:
            self._watch_until(time.monotonic() + self._patience() + may_take)

    def pause(self) -> None:
        """No step is under way."""
        self._on, self._until = False, math.inf

    def _patience(self) -> float:
        if self._config.stall_timeout_given:
            return self._config.stall_timeout
        return max(self._config.stall_timeout, _LONGER_AT_MOST * self._longest)

    def _watch_until(self, moment: float) -> None:
        self._until = moment
        if self._thread is None and moment < math.inf:
            self._thread = threading.Thread(target=self._look, name="stall", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        while time.monotonic() < self._until:
            time.sleep(_LOOK_SECONDS)
        patience = self._patience()
        what = f"no step was finished for {patience:.4g} s (--stall-timeout)"
        # Others may have measured another longest step.
        later = 0.0 if self._config.stall_timeout_given else patience / _LONGER_AT_MOST
        end_stalled(self._config, what, self._state(), kind=self._kind, answer_seconds=max(ANSWER_SECONDS, later))
