"""Ends the process when nothing moves: the main thread may be waiting inside TensorFlow forever.

TensorFlow waits for its peers in two places (connecting to them, and telling them of a new function) without
letting go of the interpreter's lock, so that no Python code runs any more, on no thread. What a watchdog in
Python would do then, the C library does: a POSIX timer that ends the process.
"""

import ctypes
import faulthandler
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Self

from dtj_trainer.errors import TrainerError

_DUMP_AFTER = 8.0
"""A machine that stands still for a few seconds makes both timers due at once: Python, which says more, goes first."""
_EXIT_AFTER = 10.0


class Watchdog:
    """Ends the process with an error, from a thread of its own, when it was not fed for this many seconds.

    Where Python is stuck as a whole, the stacks of all threads are printed 8 seconds later, and after two more the
    process ends with the error's exit code all the same. A context manager: it watches from entering to leaving.
    """

    def __init__(self, seconds: float, error: TrainerError, *, end_with: Callable[[BaseException], object]) -> None:
        self._seconds = seconds
        self._error = error
        self._end_with = end_with
        self._last_resort = LastResort(error.exit_code)
        self._until = 0.0
        self._over = threading.Event()

    def feed(self, seconds: float | None = None) -> None:
        """Something moved, or may take this many seconds to move."""
        patience = self._seconds if seconds is None else seconds
        self._until = time.monotonic() + patience
        faulthandler.dump_traceback_later(patience + _DUMP_AFTER)
        self._last_resort.set(patience + _EXIT_AFTER)

    def __enter__(self) -> Self:
        self.feed()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()
        self._last_resort.cancel()

    def _watch(self) -> None:
        while (left := self._until - time.monotonic()) > 0:
            if self._over.wait(left):
                return
        self._end_with(self._error)


class LastResort:
    """Ends the process with an exit code at a set time, on a thread of the C library's. Linux only; elsewhere, nothing.

    See timer_create(2) with SIGEV_THREAD: the function that it starts is `_exit` itself, the value it gets the code.
    """

    def __init__(self, code: int) -> None:
        self._timer = ctypes.c_void_p()
        try:
            # The time functions have left librt for libc; its stub still finds them, in old and new glibc.
            self._library = ctypes.CDLL("librt.so.1", use_errno=True)
            event = SigEvent(
                value=code, notify=SIGEV_THREAD, function=ctypes.cast(self._library._exit, ctypes.c_void_p)
            )
            self._works = (
                self._library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) == 0
            )
        except (OSError, AttributeError):
            self._works = False

    def set(self, seconds: float) -> None:
        """The process ends this many seconds from now, unless this is called again."""
        if self._works:
            fraction, whole = math.modf(seconds)
            spec = _TimerSpec(value_seconds=int(whole), value_nanoseconds=int(fraction * 1e9))
            self._library.timer_settime(self._timer, 0, ctypes.byref(spec), None)

    def cancel(self) -> None:
        """The process goes on."""
        self.set(0.0)


_CLOCK_MONOTONIC = 1
SIGEV_THREAD = 2


class SigEvent(ctypes.Structure):
    """`struct sigevent` of Linux on 64 bits."""

    _fields_: ClassVar = [
        ("value", ctypes.c_int64),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("reserved", ctypes.c_char * 32),
    ]


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec` of Linux on 64 bits."""

    _fields_: ClassVar = [
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("value_seconds", ctypes.c_long),
        ("value_nanoseconds", ctypes.c_long),
    ]
