"""The status port of a pod: how it is asked, and how its answer is read.

A pod may lie, hang, flood or be gone: each answer has a time limit and a size limit, and what makes no sense in it is
left out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from dtj.api.json import JsonObject
from dtj.api.status import MAX_INTEGER, Progress
from dtj.core.policies.stragglers import Reading

TIMEOUT: Final = 3.0
"""Seconds that an answer may take."""

MAX_BYTES: Final = 64 * 1024
"""Size of the largest answer that is read."""


async def fetch(host: str, port: int, *, request: str = "GET /status", timeout: float = TIMEOUT) -> bytes | None:
    """The body of the answer; None if none came in time, or one that is too large."""
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_BYTES)
            try:
                writer.write(f"{request} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) <= MAX_BYTES and (more := await reader.read(MAX_BYTES)):
                    answer += more
            finally:
                writer.close()
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        if len(answer) <= MAX_BYTES and head.split(b" ", 2)[1:2] == [b"200"]:
            return body
    return None


def read_progress(body: bytes) -> Progress | None:
    """What an answer reports of the training; None if there is nothing in it that can be read."""
    return Progress.from_object(_decoded(body))


def read_step_timing(body: bytes, *, at: float) -> Reading | None:
    """What an answer reports of the replica's own steps, read at ``at``; None if it is not a JSON object."""
    content = _decoded(body)
    if content is None:
        return None
    step = content.get("step")
    return Reading(
        at,
        step=step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_INTEGER else None,
        step_seconds=_duration(content.get("stepSeconds")),
    )


def _decoded(body: bytes) -> JsonObject | None:
    with suppress(msgspec.DecodeError, RecursionError):  # the latter of brackets in brackets
        content = msgspec.json.decode(body)
        return content if isinstance(content, dict) else None
    return None


def _duration(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value <= MAX_INTEGER else None
