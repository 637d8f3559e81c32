"""Waiting for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


def eventually(check: Callable[[], T], *, seconds: float = 20.0) -> T:
    """What ``check`` returns as soon as it raises no AssertionError; its last one where that does not come."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def always(check: Callable[[], None], *, seconds: float) -> None:
    """``check`` must hold for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check()
        time.sleep(POLL_SECONDS)
