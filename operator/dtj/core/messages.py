"""Text for people that others decide: the API server's and webhooks' words, last words of pods, lists of names.

The status has limits (``maxLength`` in the CRD), and a status over them could never be written; nor could one with half
a character in it. Whoever looks at it with kubectl is safe from what a terminal obeys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dtj.api.printable import printable

MAX_MESSAGE: Final = 4096
"""Most characters of a condition's message; the CRD allows 32,768, but several conditions repeat one message."""

MAX_LOG_TAIL: Final = 32_768
"""Most characters of ``rootCause.logTail``, as in the CRD."""

MAX_NOTE: Final = 1024
"""Most characters that are kept of an annotation on an object of the job, to be compared: the longest that we write has
some 400."""

WAITING_IN_QUEUE: Final = "waiting in the queue"
"""Until others say why a job waits."""

MAX_NAMES: Final = 3
"""Most names that a message lists."""


def cut(message: str, limit: int = MAX_MESSAGE) -> str:
    """``message``, printable, with at most ``limit`` characters: beginning and end, which say what happened and what
    follows."""
    message = printable(message)
    if len(message) <= limit:
        return message
    left_out = f" [... {len(message):,} characters in all ...] "
    end = limit // 4
    return message[: limit - end - len(left_out)] + left_out + message[-end:]


def first_few(names: Iterable[str]) -> str:
    """``a, b, c and 5 more``."""
    listed = list(names)
    more = len(listed) - MAX_NAMES
    return ", ".join(listed[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
