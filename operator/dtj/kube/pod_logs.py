"""Reading the log of a container: what is asked for, and a stream of bytes as lines of bounded length."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

MAX_LOG_LINE_BYTES: Final = 2**16
"""What is kept of a line: a program that never ends its line must not fill our memory."""


@dataclass(frozen=True, slots=True)
class StampedLine:
    """A line, and when it was written; None and an empty ``stamp`` if that is not known."""

    stamp: str
    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which part of a container's log. Each line comes with its timestamp (RFC 3339) and a space before it."""

    container: str
    follow: bool = False
    """Whether to wait for more until the container ends."""

    tail: int | None = None
    """The number of last lines; None means all."""

    since_seconds: int | None = None
    """Leave out lines that are older than this number of seconds."""

    since_time: str = ""
    """Not what is older than this moment (RFC 3339); kubelets look at whole seconds. Wins over ``since_seconds``."""

    def parameters(self) -> dict[str, str]:
        """The query of the URL."""
        parameters = {
            "container": self.container,
            "timestamps": "true",
            "follow": "true" if self.follow else None,
            "tailLines": None if self.tail is None else str(self.tail),
            "sinceTime": self.since_time or None,
            "sinceSeconds": str(self.since_seconds) if self.since_seconds and not self.since_time else None,
        }
        return {name: value for name, value in parameters.items() if value is not None}


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The lines, without their ends; of each no more than :data:`MAX_LOG_LINE_BYTES`. The last needs no end."""
    kept = b""
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        kept += first[: MAX_LOG_LINE_BYTES - len(kept)]
        for part in others:
            yield kept
            kept = part[:MAX_LOG_LINE_BYTES]
    if kept:
        yield kept
