"""The status port of a pod: how it is asked, and what is read of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dtj.api.status import Progress
from dtj.core.policies.straggler import Reading
from dtj.engine.progress import decoded, fetch
from dtj.engine.step_timings import read_step_timing


@asynccontextmanager
async def serving(answer: bytes, *, hang: bool = False, flood: bool = False) -> AsyncIterator[int]:
    """A pod's status port that answers this."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        try:
            while flood:
                writer.write(b"x" * 65536)
                await writer.drain()
            if hang:
                await reader.read()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "more", "timeout", "read"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}", {}, 30.0, b"{}"),
        (b"HTTP/1.0 200 OK\r\n\r\n{", {"hang": True}, 0.05, None),
        (b"HTTP/1.0 200 OK\r\n\r\n", {"flood": True}, 30.0, None),
        (b"HTTP/1.0 404 Not Found\r\n\r\n{}", {}, 30.0, None),
    ],
    ids=["whole", "a pod that hangs", "a pod that floods", "another status"],
)
async def test_an_answer_is_read_if_it_is_one_that_ends(
    answer: bytes, more: dict[str, bool], timeout: float, read: bytes | None
) -> None:
    async with serving(answer, **more) as port, asyncio.timeout(20.0):
        assert await fetch("127.0.0.1", port, timeout=timeout) == read


@pytest.mark.parametrize("host", ["127.0.0.1", "no such host", "256.1.1.1"])
async def test_a_pod_that_cannot_be_reached_is_no_error(host: str) -> None:
    assert await fetch(host, 1, timeout=2) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"hello", b"\xff", b"[" * 60_000, b'{"step": '])
def test_an_answer_that_is_no_document_is_none(body: bytes) -> None:
    assert decoded(body) is None


def test_an_answer_reports_the_training() -> None:
    assert Progress.from_object(decoded(b'{"step": 5}')) == Progress(step=5)


@pytest.mark.parametrize(
    ("body", "step", "seconds"),
    [
        (b'{"step": 5, "stepSeconds": 0.5}', 5, 0.5),
        (b'{"step": -5, "stepSeconds": -1}', None, None),
        (b'{"step": true, "stepSeconds": true}', None, None),
        (b'{"step": "many", "stepSeconds": "long"}', None, None),
        (b'{"step": 1e300, "stepSeconds": 1e300}', None, None),
        (b'{"stepSeconds": 0}', None, None),
    ],
)
def test_of_a_pod_that_lies_what_makes_sense_is_read(body: bytes, step: int | None, seconds: float | None) -> None:
    answer = decoded(body)
    assert answer is not None
    assert read_step_timing(answer, at=1.0) == Reading(1.0, step, seconds)
