"""Supervision: what goes wrong in one part of the engine ends neither the others nor the process.

The operator serves all jobs of a cluster, and reads what any tenant may write. A defect that one object shows would end
each operator in turn, since the next leader reads the same object. So

- a task of the engine that raises is started again after a while (:meth:`Supervisor.keep`);
- a piece of work that raises, such as one question to a pod, is given up (:meth:`Supervisor.sparing`).

Each error is one log line with its traceback, and counted by the part that met it (``dtj_defects_total``). What is
expected to fail, such as a call to the API server, is handled where it is made and does not come here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dtj.core.messages import cut
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)

LASTING_SECONDS: Final = 60.0
"""A task that has run for so long since its last start runs again: an error after that is the first one."""

HOPELESS_SECONDS: Final = 600.0
"""For how long a task may fail before the liveness probe fails: a new process may help where new starts do not."""

PASS: Final = "pass over a job"
QUESTION: Final = "question to a pod"
COMPARISON: Final = "comparison of step times"

WITHOUT_TASK: Final = (PASS, QUESTION, COMPARISON)
"""The parts that :meth:`Supervisor.keep` does not begin, so that nobody else counts their first zero."""


class Supervisor:
    """Keeps the tasks of an engine going."""

    def __init__(self, *, count: Callable[[str, int], None] = lambda part, errors: None) -> None:
        """``count`` gets the name of a part and how many errors it has met: 0 when a task begins."""
        self._count = count
        self._backoff = Backoff(base=1.0, cap=60.0)
        self._failing_since: dict[str, float] = {}

    async def keep(self, part: str, work: Callable[[], Awaitable[object]]) -> None:
        """Have ``work`` done until it returns or this is cancelled; after an error it is begun again."""
        failures = 0
        self._count(part, 0)
        while True:
            began = loop_time()
            try:
                await self._lasting(part, work)
            except asyncio.CancelledError as error:
                if _is_asked_to_end():
                    raise
                caught: BaseException = error  # of something that it waited for
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                caught = error
            else:
                return
            failures = 1 if loop_time() - began >= LASTING_SECONDS else failures + 1
            self._failing_since.setdefault(part, loop_time())
            delay = self._backoff.delay(failures)
            self._report(part, caught, f"starting again in {delay:.1f} s")
            await asyncio.sleep(delay)

    async def _lasting(self, part: str, work: Callable[[], Awaitable[object]]) -> None:
        """``work``; once it has lasted, it does not count as failing any more."""
        lasts = asyncio.get_running_loop().call_later(LASTING_SECONDS, self._failing_since.pop, part, None)
        try:
            await work()
        finally:
            lasts.cancel()

    @contextmanager
    def sparing(self, part: str) -> Iterator[None]:
        """What is done within the block is given up where it raises, and the caller goes on after the block."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as in keep
            self._report(part, error, "going on without")

    def failing(self) -> str:
        """Which task fails, and for how long, where new starts have not helped; empty if there is none."""
        now = loop_time()
        hopeless = (part for part, since in self._failing_since.items() if now - since > HOPELESS_SECONDS)
        return next((f"{part} has failed for {now - self._failing_since[part]:.0f} s" for part in hopeless), "")

    def _report(self, part: str, error: BaseException, what_follows: str) -> None:
        self._count(part, 1)
        log.error("%s failed: %s; %s", part, words_of(error), what_follows, exc_info=error)


def words_of(error: BaseException) -> str:
    """An unexpected error in one line of bounded length: it may repeat what somebody else wrote."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = " ".join(cut(str(error), _MOST_WORDS).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


_MOST_WORDS: Final = 300


def _is_asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
