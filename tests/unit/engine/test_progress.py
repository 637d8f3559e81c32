"""What is a stall of the job: the engine and the real planner, with pods that train, are silent or stand still."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.status import JobStatus
from dtj.engine import progress
from dtj.kube.gateway import JOBS, PODS
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import loop_time, virtual_time

TIMEOUT = 60

Answer = Callable[[], int | None]
"""The step that the pod answers now; None where it does not answer."""


def moves() -> int | None:
    return int(loop_time() * 10)


def stands() -> int | None:
    return 7


class Story:
    """A job of two workers whose pods all run, and one operator after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Answer, *, on_stall: str = "Fail") -> None:
        self.gateway = FakeGateway()
        self.answer = answer
        self.asked = 0
        self.on_stall = on_stall
        monkeypatch.setattr(progress, "fetch", self._fetch)

    async def _fetch(self, host: str, port: int, **_: object) -> bytes | None:
        self.asked += 1
        step = self.answer()
        if step is None:
            await asyncio.sleep(progress.TIMEOUT)
            return None
        return json.dumps({"phase": "Training", "step": step}).encode()

    async def operator(self, *, seconds: float) -> None:
        """An operator works for so long, then it is gone."""
        async with harnessed(gateway=self.gateway) as harness:
            harness.tell(self.gateway.body(JOBS, "digits"))
            await asyncio.sleep(seconds)

    async def begin(self) -> None:
        policy = {"stallTimeoutSeconds": TIMEOUT, "onStall": self.on_stall}
        metadata: JsonObject = {"name": "digits", "generation": 1, "uid": "u"}
        self.gateway.put(JOBS, {**manifest(runPolicy=policy), "metadata": metadata})
        await self.operator(seconds=2)
        ready: JsonObject = {"type": "Ready", "status": "True"}
        for name in self.gateway.names(PODS):
            status: JsonObject = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}
            self.gateway.put(PODS, {**self.gateway.body(PODS, name), "status": status})

    @property
    def status(self) -> JobStatus:
        return Job.from_object(self.gateway.body(JOBS, "digits")).status

    def stalled(self) -> str:
        condition = self.status.condition(Condition.PROGRESS_STALLED)
        assert condition is not None
        return condition.status


class TestWhatIsNoStall:
    @pytest.mark.parametrize("on_stall", ["Fail", "Restart"])
    @pytest.mark.parametrize("away", [20, 3600])
    @virtual_time
    async def test_an_operator_that_was_away(self, monkeypatch: pytest.MonkeyPatch, on_stall: str, away: float) -> None:
        story = Story(monkeypatch, moves, on_stall=on_stall)
        await story.begin()
        await story.operator(seconds=60)
        await asyncio.sleep(away)
        for seconds in (1, 15, 30, 100):
            await story.operator(seconds=seconds)
            assert (story.status.state, story.status.attempt, story.status.restarts.total) == ("Running", 1, 0)
        assert story.asked


class TestWhatIsOne:
    @virtual_time
    async def test_after_a_silence_it_is_found_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pod that was silent for long is not asked ever more rarely where a stall is to be seen."""

        story = Story(monkeypatch, stands)
        await story.begin()
        light = loop_time() + 3600
        story.answer = lambda: stands() if loop_time() >= light else None
        await story.operator(seconds=3600 + TIMEOUT + TIMEOUT / 4 + 3 * progress.INTERVAL)
        assert (story.status.state, story.status.reason) == ("Failed", "Stalled")
