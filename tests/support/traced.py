"""What a piece of work costs, without a clock: no other work on the machine changes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def lines_of(work: Callable[[], T]) -> tuple[int, T]:
    """How many lines of Python run in ``work``, and what it returns."""
    number = 0

    def count(*_: object) -> Any:
        nonlocal number
        number += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = work()
    finally:
        sys.settrace(before)
    return number, found
