"""The signals that ask a command to end."""

from __future__ import annotations

import signal
from typing import Final

_ASK_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signals_that_end() -> tuple[signal.Signals, ...]:
    """Those that this process does not ignore, as it ignores SIGHUP under nohup, and SIGINT in the background of a
    script."""
    return tuple(number for number in _ASK_TO_END if signal.getsignal(number) != signal.SIG_IGN)
