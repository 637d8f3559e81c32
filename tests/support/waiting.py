"""Waiting for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from patience import PATIENCE_SECONDS, pause_after

T = TypeVar("T")

POLL_SECONDS = 0.05


def eventually(check: Callable[[], T]) -> T:
    """What ``check`` returns as soon as it raises no AssertionError; its last one where that does not come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        asked = time.monotonic()
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(max(POLL_SECONDS, pause_after(time.monotonic() - asked)))


def eventually_true(holds: Callable[[], bool]) -> None:
    """Wait until this is so."""

    def checked() -> None:
        assert holds()

    eventually(checked)


def eventually_equal(find: Callable[[], object], wanted: object) -> None:
    """Wait until what is found is this."""

    def checked() -> None:
        assert (found := find()) == wanted, f"it is {found}, not {wanted}"

    eventually(checked)


def always(check: Callable[[], None], *, seconds: float) -> None:
    """``check`` must hold for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check()
        time.sleep(POLL_SECONDS)
