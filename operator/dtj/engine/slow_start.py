"""Many calls at once, with a slow start: where the first is refused, the rest is not even tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

MAX_IN_FLIGHT: Final = 50
"""Calls of one batch at the same time."""


async def slow_start(calls: Iterable[Callable[[], Coroutine[Any, Any, None]]], *, limit: int = MAX_IN_FLIGHT) -> None:
    """Await all ``calls``, started in order: one first, and with every success one more at a time, up to ``limit``.

    So the number in flight doubles with each round trip, 1-2-4-8…, as in Kubernetes' own Job controller, but no
    round waits for its slowest call. After the first failure nothing is started any more; what is in flight is
    awaited, and that first error is raised.
    """
    waiting = iter(calls)
    lanes: list[asyncio.Task[None]] = []
    failure: BaseException | None = None

    def open_lane() -> None:
        lanes.append(asyncio.create_task(lane()))

    async def lane() -> None:
        nonlocal failure
        for call in waiting:
            if failure is not None:
                return
            try:
                await call()
            except BaseException as error:
                failure = failure or error
                raise
            if len(lanes) < limit:
                open_lane()

    open_lane()
    try:
        while running := [task for task in lanes if not task.done()]:
            await asyncio.gather(*running, return_exceptions=True)
    finally:
        for task in lanes:
            task.cancel()
    if failure is not None:
        raise failure
