"""Replicas that are slower than their peers."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import pytest

from builders import NOW, job
from dtj.api.status import Progress
from dtj.core.observed import SeenProgress, Straggler
from dtj.core.policies.straggler import MIN_REPLICAS, READINGS, Reading, slow
from dtj.engine import progress, step_timings
from dtj.engine.step_timings import read_step_timing
from dtj.engine.supervision import Supervisor
from dtj_launch.progress import ProgressStore
from dtj_trainer.periodic import ComputeTimer
from support.status_ports import StatusPorts
from support.virtual_time import virtual_time
from world import World


def in_step(own: float) -> Reading:
    """What is read from a trainer that needs so much of each second, in which all take a step."""
    clock, board = count().__next__, ProgressStore()
    part = ComputeTimer(clock=clock)
    for step in range(4):
        board.update(step=step, step_seconds=part.mark(step, waited=step * (1 - own)))
    return read_step_timing(board.document(), at=1.0)


def test_of_workers_in_step_the_one_is_slow_that_the_trainers_of_the_others_wait_for() -> None:
    found = slow({}, {f"worker-{n}": in_step(own) for n, own in enumerate((0.2, 0.21, 1.0))}, in_step=True)
    assert [straggler.hostname for straggler in found] == ["worker-2"]
    assert found[0].times == pytest.approx(1.0 / 0.21)


class Pods(StatusPorts):
    """The pods of one job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, workers: int = 4) -> None:
        super().__init__()
        self.says: dict[str, object] = {}
        self.together = self.most_together = 0
        self.world = World(job(roles={"worker": workers})).start()
        self.memory = self.add(self.world.job, self.world.pods.values())
        self.memory.progress = SeenProgress("uid-1", Progress(step=1), NOW)
        self.answer = self._answer
        monkeypatch.setattr(progress, "fetch", self.fetch)

    async def _answer(self, address: str) -> bytes | None:
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        await asyncio.sleep(0)
        self.together -= 1
        answer = self.says.get(address.removeprefix("digits-"))
        return json.dumps(answer).encode() if answer is not None else None

    async def rounds(self, number: int) -> None:
        finder = step_timings.StragglerFinder(self.state, self.queue, supervisor=Supervisor())
        for _ in range(number):
            self.memory.step_timings.asking.not_before = 0.0
            await finder.compare_all()


class TestAsking:
    async def test_one_that_is_slow_three_times_in_a_row_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pods = Pods(monkeypatch)
        pods.says = {f"worker-{n}": {"step": 5, "stepSeconds": 4.0 if n == 2 else 1.0} for n in range(4)}
        await pods.rounds(READINGS - 1)
        assert list(pods.memory.step_timings.stragglers) == []
        await pods.rounds(1)
        assert list(pods.memory.step_timings.stragglers) == [Straggler("worker-2", 4.0)]
        assert len(pods.queue) == 1
        pods.says["worker-2"] = {"step": 5, "stepSeconds": 1.0}
        await pods.rounds(1)
        assert list(pods.memory.step_timings.stragglers) == []

    async def test_a_job_whose_pods_publish_nothing_to_compare_is_asked_ever_more_rarely(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pods = Pods(monkeypatch)
        pods.says = {f"worker-{n}": {"step": 5} for n in range(4)}
        finder = step_timings.StragglerFinder(pods.state, pods.queue, supervisor=Supervisor())
        for _ in range(2):
            await finder.compare_all()
            assert len(pods.asked) == 4
        later = pods.memory.step_timings.asking.wait
        await pods.rounds(3)
        assert pods.memory.step_timings.asking.wait > later

    @pytest.mark.parametrize(
        ("workers", "known"), [(4, False), (MIN_REPLICAS - 1, True)], ids=["progress not known", "too few"]
    )
    async def test_a_job_of_which_nothing_can_be_compared_is_not_asked(
        self, monkeypatch: pytest.MonkeyPatch, *, workers: int, known: bool
    ) -> None:
        pods = Pods(monkeypatch, workers=workers)
        if not known:
            pods.memory.progress = None
        await pods.rounds(3)
        assert pods.asked == []

    async def test_few_pods_are_asked_at_the_same_time_and_no_more_than_a_job_may_have(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pods = Pods(monkeypatch, workers=step_timings.MAX_ASKED + 10)
        await pods.rounds(1)
        assert len(pods.asked) == step_timings.MAX_ASKED
        assert pods.most_together <= step_timings.AT_ONCE

    @virtual_time
    async def test_slow_pods_of_one_namespace_delay_those_of_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pods = Pods(monkeypatch)
        for number in range(100):
            namespace = "other" if number == 99 else "slow"
            like = pods.add_like(pods.world.job, pods.world.pods.values(), number=number, namespace=namespace)
            like.progress = pods.memory.progress

        async def answer(address: str) -> bytes:
            await asyncio.sleep(2.9 if address == "slow" else 0.0)
            return b'{"step": 5, "stepSeconds": 1}'

        pods.answer = answer
        task = asyncio.create_task(step_timings.StragglerFinder(pods.state, pods.queue, supervisor=Supervisor()).run())
        await asyncio.sleep(step_timings.INTERVAL + 1)
        assert len(pods.times("other")) == 4
        await asyncio.sleep(step_timings.INTERVAL)
        assert len(pods.times("other")) == 8
        task.cancel()
