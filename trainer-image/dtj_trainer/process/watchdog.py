"""Ends the process when nothing moves: the main thread may be waiting inside TensorFlow forever.

One thread looks at all that is watched. TensorFlow waits for its peers in two places (connecting to them, and telling
them of a new function) without letting go of the interpreter's lock, so that no Python code runs any more, on no
thread. So the process tells the launcher until when it is alive, and the launcher ends it: see `dtj_launch.deadline`.
Without the launcher, faulthandler ends it with exit code 1, which it can without Python.
"""

import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from dtj_launch.deadline import VARIABLE
from dtj_trainer.errors import ExitCode, TrainerError
from dtj_trainer.process.ending import end_with

T = TypeVar("T")
_EXIT_AFTER = 10.0
"""A machine that stands still for a few seconds makes both ends due at once: Python, which says more, goes first."""
_STACKS_BEFORE = 2.0
"""How long before the launcher ends the process the stacks of all threads are printed."""
_TELL_EVERY = 1.0
"""The launcher need not know of a deadline that has moved by less."""


class Watchdog:
    """Ends the process with an error, from a thread of its own, when it was not fed for this many seconds.

    Where Python is stuck as a whole, the stacks of all threads are printed, and ten seconds later the process ends with
    the error's exit code all the same. A context manager: it watches from entering to leaving.
    """

    ends_stuck_python = True
    """Whether that is so: what the user's own code does may hold Python for as long as it likes."""

    def __init__(self, seconds: float, error: TrainerError, *, end: Callable[[], object] | None = None) -> None:
        """Args:
        end: what ends the process in place of the error, and says more.
        """
        self.seconds = seconds
        self.end = end or (lambda: end_with(error))
        self._last_resort = LastResort(error.exit_code)

    def feed(self, seconds: float | None = None) -> None:
        """Something moved, or may take this many seconds to move."""
        patience = self.seconds if seconds is None else seconds
        _deadlines.set(self, time.monotonic() + patience)
        if self.ends_stuck_python:
            self._last_resort.set(patience + _EXIT_AFTER)

    def ends_within(self, seconds: float) -> None:
        """It ends the process now, and may take this many seconds for its last words."""
        if self.ends_stuck_python:
            self._last_resort.set(seconds + _EXIT_AFTER)

    def rest(self) -> None:
        """Nothing has to move until it is fed again."""
        _deadlines.set(self, None)
        if self.ends_stuck_python:
            self._last_resort.cancel()

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: TracebackType | None) -> None:
        self.rest()


class LastResort:
    """Ends the process with an exit code at a set time, though Python is stuck; it is no thread of Python's.

    Without the launcher, the exit code is 1; and 0 is none of a process that is stuck, so nothing ends it then.
    """

    def __init__(self, code: int) -> None:
        self.code = code

    def set(self, seconds: float) -> None:
        """The process ends this many seconds from now, unless this is called again."""
        _deadlines.set_last(self, time.monotonic() + seconds)

    def cancel(self) -> None:
        """The process goes on."""
        _deadlines.set_last(self, None)


@contextmanager
def unattended() -> Iterator[None]:
    """The launcher ends the process soon when it is asked to stop and does not, as Python may be stuck as a whole.

    To be entered where nothing is to be saved.
    """
    _deadlines.set_stop(ExitCode.TERMINATED)
    try:
        yield
    finally:
        _deadlines.set_stop(None)


@contextmanager
def fed_by_moves(watchdog: Watchdog) -> Iterator[None]:
    """Meanwhile, `moved` feeds this watchdog."""
    _fed.append(watchdog)
    try:
        yield
    finally:
        _fed.remove(watchdog)


def moved() -> None:
    """A part is done of what this task does alone, and which may take hours in all, such as reading its data."""
    for watchdog in _fed:
        watchdog.feed()


def moving(parts: Iterable[T]) -> Iterator[T]:
    """The parts of such a work: see `moved`."""
    for part in parts:
        moved()
        yield part


_fed: list[Watchdog] = []


class _Deadlines:
    """All deadlines of this process, and the thread that looks at them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Watchdog, float] = {}
        self._last: dict[LastResort, float] = {}
        self._stop: int | None = None
        self._told: tuple[float, int, int | None] = (math.inf, 0, None)
        self._launcher: int | None = None
        self._thread: threading.Thread | None = None

    def set(self, watchdog: Watchdog, moment: float | None) -> None:
        """Has a watchdog end the process at this moment of the monotonic clock; None: not at all."""
        with self._changed:
            earliest = min(self._due.values(), default=math.inf)
            _put(self._due, watchdog, moment)
            if min(self._due.values(), default=math.inf) < earliest:
                self._changed.notify()
            if self._thread is None and moment is not None:
                self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
                self._thread.start()

    def set_last(self, resort: LastResort, moment: float | None) -> None:
        """The same for the end of a process whose Python is stuck."""
        with self._changed:
            _put(self._last, resort, moment)
            self._tell()

    def set_stop(self, code: int | None) -> None:
        """Has the process end with this code when it is asked to stop and does not."""
        with self._changed:
            self._stop = code
            self._tell()

    def _look(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for watchdog in [each for each, moment in self._due.items() if moment <= now]:
                    del self._due[watchdog]
                    threading.Thread(target=watchdog.end, name="watchdog", daemon=True).start()
                left = min(self._due.values(), default=math.inf) - now
                self._changed.wait(min(left, threading.TIMEOUT_MAX))

    def _tell(self) -> None:
        """Says until when this process is alive, unless that is known well enough."""
        resort = min(self._last, key=self._last.__getitem__, default=None)
        moment, code = (self._last[resort], resort.code) if resort else (math.inf, 0)
        told, *others = self._told
        if [code, self._stop] == others and (told == moment or told <= moment < told + _TELL_EVERY):
            return
        if self._launcher is None:
            self._launcher = _pipe_of(os.environ.pop(VARIABLE, ""))
        if self._launcher >= 0:
            until = "-" if math.isinf(moment) else f"{moment:.3f}"
            line = f"{until} {code} {'-' if self._stop is None else self._stop}\n"
            try:
                os.write(self._launcher, line.encode())
            except OSError:
                return  # is told again with the next change
        self._told = (moment, code, self._stop)
        faulthandler.cancel_dump_traceback_later()
        left = moment - time.monotonic() - (_STACKS_BEFORE if self._launcher >= 0 else 0.0)
        if code and left > 0:
            faulthandler.dump_traceback_later(left, exit=self._launcher < 0, file=2)


def _put(deadlines: dict[Any, float], key: object, moment: float | None) -> None:
    if moment is None:
        deadlines.pop(key, None)
    else:
        deadlines[key] = moment


def _pipe_of(named: str) -> int:
    """The descriptor of the launcher's pipe; -1 where there is none, or another file has its number by now."""
    number, _, inode = named.partition(":")
    with suppress(ValueError, OSError):
        descriptor = int(number)
        if os.fstat(descriptor).st_ino == int(inode):
            os.set_inheritable(descriptor, False)
            return descriptor
    return -1


def _forget() -> None:
    """A process that a script forks is not this task."""
    global _deadlines
    # What the launcher has forked is: it has told nothing before, and gets the variable after that.
    is_task = _deadlines._launcher is None and VARIABLE not in os.environ
    _deadlines = _Deadlines()
    _deadlines._launcher = None if is_task else -1


_deadlines = _Deadlines()
os.register_at_fork(after_in_child=_forget)
