"""Signals on their way to the program. Process 1 receives only what it handles, so all of them are handled here."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable

from . import child

log = logging.getLogger(__name__)

_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
    if hasattr(signal, name)
)
TO_GO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Relay:
    """Passes signals on to the program's process group, and answers those that no program is there for."""

    def __init__(self, *, grace: float | None, leave: Callable[[int], object]) -> None:
        """Args:
        grace: seconds from the first request to go to SIGKILL.
        leave: ends the launcher with an exit code.
        """
        self.termination_requested = False
        """Whether this task was asked to stop."""
        self.saves = False
        """Whether the program was asked to save and to end, to start again."""
        self._grace = grace
        self._leave = leave
        self._group: int | None = None
        self._kill_at: float | None = None
        self._late = ""

    @property
    def asked_to_go(self) -> bool:
        """Whether the program was asked to end, for whichever of the two."""
        return self.termination_requested or self.saves

    def listen(self) -> int:
        """Takes the signals over. Returns a descriptor that can be read whenever one came, a child's end too."""
        ours, theirs = os.pipe()
        for end in (ours, theirs):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGQUIT, self._print_stacks)
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        return ours

    def aim(self, group: int | None) -> None:
        """Who gets the signals from now on."""
        self._group, self._kill_at, self.saves = group, None, False

    def have_it_save(self, seconds: float) -> None:
        """Asks the program to save and to end within this many seconds. It is not asked again: a second request would
        cut the save short."""
        self.saves = True
        self._kill_after(seconds, "save")
        if self._group is not None:
            child.signal_group(self._group, signal.SIGTERM)

    def enforce(self) -> float | None:
        """Kills a program that runs on for too long after a request; returns the seconds until the next check."""
        if self._kill_at is None or self._group is None:
            return None
        left = self._kill_at - time.monotonic()
        if left > 0:
            return left
        log.warning(f"still running {self._late}: killing it")
        self._kill_at = None
        child.signal_group(self._group, signal.SIGKILL)
        return None

    def _kill_after(self, seconds: float, request: str) -> None:
        """A request before this one keeps its moment."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + seconds
            self._late = f"{seconds:g} s after the request to {request}"

    def _pass_on(self, number: int, _: object) -> None:
        if number in TO_GO:
            self.termination_requested = True
            if self._group is None:
                log.info(f"{signal.Signals(number).name}: exiting at once, because nothing runs")
                self._leave(128 + number)
            if self._grace is not None:
                self._kill_after(self._grace, "stop (--grace)")
        if self._group is not None and not (self.saves and number == signal.SIGTERM):
            child.signal_group(self._group, number)

    def _print_stacks(self, number: int, _: object) -> None:
        if self._group is None or not child.print_stacks(self._group):
            log.info("SIGQUIT: no Python runs here that would print its stacks")
