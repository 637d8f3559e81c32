"""How commands end: what the exit codes of ``dtj`` mean, and the signals that ask it to end."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """0 to 4 are about what was asked for; 70 is a defect of ours; 128 and more say that a signal ended it."""

    OK = 0
    FAILED = 1
    """The job failed."""

    USAGE = 2
    """Bad input: one line has reported what is wrong, and nothing was run."""

    TIMEOUT = 3
    """The time that was given is over."""

    API = 4
    """The cluster cannot be reached, or it refused."""

    DEFECT = 70
    """A defect of ``dtj`` itself; a traceback says where. Not 1, which a script takes for a job that failed."""

    SIGNAL = 128
    """Plus the number of the signal: 130 after Ctrl-C."""


_ASK_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signals_that_end() -> tuple[signal.Signals, ...]:
    """Those that this process does not ignore, as it ignores SIGHUP under nohup, and SIGINT in the background of a
    script."""
    return tuple(number for number in _ASK_TO_END if signal.getsignal(number) != signal.SIG_IGN)
