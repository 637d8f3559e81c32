"""The answer to a watch, line by line."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import aiohttp

from dtj.kube.errors import Gone

WATCH_SILENCE_SECONDS: Final = 90.0
"""How long a watch may be silent. Servers send a bookmark every minute; more silence is a dead connection."""

MAX_LINE_BYTES: Final = 2**24
"""Longest line of a watch that is read. etcd takes objects up to 1.5 MiB, and JSON writes ``<`` in six bytes. An object
that exceeds the limit has all objects listed at each change of it."""


async def watch_lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of a watch; one that is cut is none. Raises Gone.

    Not by aiohttp's readline, whose limit is that of its buffer."""
    begun = bytearray()
    try:
        async for chunk in content.iter_any():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield bytes(begun + end)
                begun.clear()
            begun += rest
            if len(begun) > MAX_LINE_BYTES:
                raise Gone(f"a line of the watch is longer than {MAX_LINE_BYTES:,} bytes: list again")
    except aiohttp.SocketTimeoutError as error:
        # Not only a dead connection is silent: so is a watch from a version that an API server whose etcd was restored
        # from a backup does not have yet, and it would be again (kubernetes/kubernetes#107457).
        raise Gone(f"the watch was silent for {WATCH_SILENCE_SECONDS:g} s: list again") from error
