"""A CRD that drops the operator's record: nothing is done until it is known to keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from dtj.api.tfjob.form import TFJOB
from dtj.engine.record_guard import RecordGuard
from dtj.kube.errors import ApiError, NotFound
from support.virtual_time import loop_time, virtual_time


class Answers:
    """What the API server says, one answer after the other; the last one stays."""

    def __init__(self, answers: Iterable[bool | ApiError]) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.returned = 0
        self.guard = RecordGuard(TFJOB, self._keeps, self._return)

    async def _keeps(self) -> bool:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def _return(self) -> None:
        self.returned += 1


UNKNOWN = NotFound("no schema yet", status=404, reason="NotFound")


@pytest.mark.parametrize("keeps", [True, False])
@virtual_time
async def test_it_waits_for_an_answer_before_anything_is_done(*, keeps: bool) -> None:
    server = Answers([UNKNOWN, UNKNOWN, keeps])
    await server.guard.know()
    assert (server.asked, server.guard.dropped) == (3, not keeps)
    assert loop_time() > 0.5


@virtual_time
async def test_it_looks_again_while_the_record_is_dropped_and_not_once_it_is_kept() -> None:
    server = Answers([False, False, UNKNOWN, True])
    await server.guard.know()
    looking = asyncio.create_task(server.guard.run())
    await asyncio.sleep(300.0)
    assert (server.asked, server.guard.dropped, server.returned) == (4, False, 1)
    looking.cancel()


@virtual_time
async def test_an_answer_to_a_write_that_lacks_the_record_is_believed_at_once() -> None:
    server = Answers([True])
    await server.guard.know()
    server.guard.doubt()
    assert server.guard.dropped
    looking = asyncio.create_task(server.guard.run())
    await asyncio.sleep(30.0)
    assert (server.guard.dropped, server.returned) == (False, 1)
    looking.cancel()
