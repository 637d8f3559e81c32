"""How far a job is, and what happens when it stands still."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from builders import NOW, edited, job, kept, pod
from dtj.api.names import Condition
from dtj.api.spec import Role
from dtj.api.status import Progress
from dtj.core.actions import PatchStatus
from dtj.core.observed import Phase
from dtj.core.platform import ClusterNetwork, Platform
from dtj.engine import progress
from dtj.engine.metrics import Metrics
from dtj.engine.progress import StackRequests
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.kube.informer import Change
from dtj.kube.records import Key
from support.virtual_time import virtual_time
from world import World, running


class TestInTheStatus:
    def test_it_is_what_worker_0_says(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=5, totalSteps=50, percent=10, metrics={"loss": "0.41"})
        shown = world.shown_progress()
        assert (shown.step, shown.total_steps, shown.metrics) == (5, 50, {"loss": "0.41"})
        assert shown.updated_at == "2026-01-02T03:04:15Z"

    def test_it_is_written_every_ten_seconds_at_most(self) -> None:
        world = running(seconds=0)
        before = len(world.taken(PatchStatus))
        for second in range(100):
            world.advance(1)
            world.hears("worker-0", step=second, examplesPerSecond=second * 1.5)
        assert 9 <= len(world.taken(PatchStatus)) - before <= 11

    @pytest.mark.parametrize(
        ("reported", "text"),
        [({"step": 6, "percent": 24}, "24%"), ({"step": 1200}, "step 1200"), ({"phase": "Building"}, "building")],
    )
    def test_it_is_also_there_in_words_for_kubectl_get(self, reported: dict[str, object], text: str) -> None:
        world = running(seconds=0)
        world.report("worker-0", **reported)
        world.wait(10)
        assert world.shown_progress().text == text

    def test_of_a_completed_job_it_is_the_last_report_that_its_pod_left(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=122, totalSteps=225, percent=54, etaSeconds=4, metrics={"loss": "0.5"})
        last = {"phase": "Done", "step": 225, "totalSteps": 225, "percent": 100, "metrics": {"loss": "0.1"}}
        world.sees("worker-0", Phase.SUCCEEDED, message=json.dumps({"progress": last}))
        shown = world.shown_progress()
        assert (shown.text, shown.phase, shown.step, shown.percent) == ("done", "Done", 225, 100)
        assert (shown.eta_seconds, shown.metrics) == (None, {"loss": "0.1"})
        world.remove("worker-0")
        world.settle()
        assert world.job.status.progress == shown

    def test_of_a_completed_job_whose_pod_left_none_the_last_answer_has_no_estimates(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=122, totalSteps=225, percent=54, etaSeconds=4)
        world.sees("worker-0", Phase.SUCCEEDED)
        shown = world.shown_progress()
        assert (shown.text, shown.phase, shown.step) == ("done", "Done", 122)
        assert (shown.percent, shown.eta_seconds) == (None, None)

    def test_before_the_first_answer_it_is_what_the_pods_wait_for(self) -> None:
        world = World(job())

        def text() -> str | None:
            world.settle()
            return world.job.status.progress.text if world.job.status.progress is not None else None

        assert text() == "waiting for pods"
        world.run_all()
        assert text() == "no report yet"
        world.advance(10)
        world.report("worker-0", phase="Gate")
        assert text() == "waiting for peers"
        world.advance(10)
        world.report("worker-0", phase="Training", step=1)
        assert text() == "step 1"

    @pytest.mark.parametrize("ends", [True, False])
    def test_of_a_job_that_does_not_run_what_its_pods_waited_for_is_no_progress(self, ends: bool) -> None:
        world = World(job()).settle()
        if ends:
            world.set_pod("worker-0", Phase.FAILED, exit_code=1)
            world.job = edited(world.job, backoff_limit=0)
        else:
            world.job = edited(world.job, suspend=True)
        world.settle_deletions()
        assert world.job.status.state == ("Failed" if ends else "Suspended")
        assert world.job.status.progress is None

    def test_words_of_a_pods_own_reach_no_terminal(self) -> None:
        for phase, words in (("\x1b[31mred", "red"), ("\u202ered", "running")):
            shown = Progress.from_object({"phase": phase})
            assert shown is not None
            assert shown.in_words() == words

    @pytest.mark.parametrize(
        ("reported", "read"),
        [
            ({"step": -1, "totalSteps": 10}, Progress(total_steps=10)),
            ({"step": "many", "epoch": 2}, Progress(epoch=2)),
            ({"percent": 400, "step": 1}, Progress(step=1)),
            ({"step": 10**300, "examplesPerSecond": 1e300, "epoch": 2}, Progress(epoch=2)),
            ({"metrics": {"loss": "x" * 1000}, "step": 1}, Progress(step=1)),
            ({"metrics": {str(n): "1" for n in range(1000)}, "step": 1}, Progress(step=1)),
            ({"phase": "x" * 1000, "step": 1}, Progress(step=1)),
            ({"updatedAt": "2099-01-01T00:00:00Z", "step": 1}, Progress(step=1)),
            ({"hello": "world"}, None),
            ([1, 2], None),
            ("step 5", None),
        ],
    )
    def test_of_a_pod_that_lies_what_makes_sense_is_read(self, reported: object, read: Progress | None) -> None:
        assert Progress.from_object(reported) == read


@dataclass(frozen=True)
class OnePort(ClusterNetwork):
    """All pods serve their progress on this port."""

    port: int = 0

    def status_port(self, *, role: Role, index: int) -> int:
        return self.port


class TestAsking:
    async def test_stacks_are_asked_for_by_another_request_and_nobody_waits(self) -> None:
        lines: list[bytes] = []
        received = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            lines.append(await reader.readline())
            received.set()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            owner = job()
            port = server.sockets[0].getsockname()[1]
            platform = Platform(network=OnePort(port=port))
            StackRequests(platform).ask([replace(pod(owner, "worker-0"), ip="127.0.0.1")])
            assert lines == []
            await asyncio.wait_for(received.wait(), 5)
        assert lines == [b"POST /stacks HTTP/1.0\r\n"]

    async def test_of_the_replica_that_knows_the_latest_pod_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = running(seconds=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.advance(30)
        world.start()
        assert world.is_true(Condition.PODS_READY)
        state = ClusterState(world.platform)
        state.jobs.put(kept(world.job))
        state.caches.begin(world.job.uid)
        for name, there in world.pods.items():
            state.pods.apply(Change(None, replace(there, ip=name)))
        asked: list[str] = []

        async def fetch(host: str, port: int, **_: object) -> bytes:
            asked.append(host)
            return b'{"step": 7}'

        monkeypatch.setattr(progress, "fetch", fetch)
        queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
        await progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW).ask_all()
        assert asked == ["digits-worker-0-r1"]
        shown = state.caches.of(world.job.uid).progress
        assert shown is not None
        assert shown.progress.step == 7

    @virtual_time
    async def test_twenty_pods_are_asked_in_a_second_at_most_and_none_of_a_job_that_is_gone(self) -> None:
        """An answer causes a write of a status at most: all jobs together cause twenty in a second."""
        world = running(seconds=0)
        state = ClusterState(world.platform)
        for number in range(60):
            uid = f"uid-{number}"
            one = replace(world.job, name=f"job-{number}", uid=uid)
            state.jobs.put(kept(one))
            state.caches.begin(uid)
            there = replace(world.pods["digits-worker-0"], name=f"job-{number}-worker-0", owner_uid=uid, ip=one.name)
            state.pods.apply(Change(None, there))
        asked: dict[str, float] = {}

        async def fetch(host: str, port: int, **_: object) -> bytes:
            asked[host] = asyncio.get_running_loop().time()
            if host == "job-0":
                state.jobs.remove(("default", "job-59"), uid="uid-59")
            return b'{"step": 7}'

        queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "fetch", fetch)
            await progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW).ask_all()
        assert sorted(asked) == sorted(f"job-{number}" for number in range(59))
        assert max(sum(begin <= at < begin + 0.999 for at in asked.values()) for begin in asked.values()) == 20

    @virtual_time
    async def test_slow_pods_of_one_namespace_delay_those_of_no_other(self) -> None:
        world = running(seconds=0)
        state = ClusterState(world.platform)
        for number in range(1001):
            namespace, uid = ("other" if number == 1000 else "slow"), f"uid-{number}"
            one = replace(world.job, namespace=namespace, name=f"job-{number}", uid=uid)
            state.jobs.put(kept(one))
            state.caches.begin(uid)
            there = replace(
                world.pods["digits-worker-0"],
                namespace=namespace,
                name=f"job-{number}-worker-0",
                owner_uid=uid,
                ip=namespace,
            )
            state.pods.apply(Change(None, there))
        asked: dict[str, list[float]] = {"other": [], "slow": []}

        async def fetch(host: str, port: int, **_: object) -> bytes:
            asked[host].append(asyncio.get_running_loop().time())
            if host == "slow":
                await asyncio.sleep(2.9)
            return b'{"step": 7}'

        queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "fetch", fetch)
            reader = progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW)
            task = asyncio.create_task(reader.run())
            await asyncio.sleep(205.0)
            task.cancel()
            await asyncio.wait([task])
        assert len(asked["other"]) == 20
        assert all(later - earlier < 11.0 for earlier, later in pairwise(asked["other"]))
        assert len(asked["slow"]) > 1000


@pytest.mark.parametrize(
    ("reported", "shown"),
    [(0, 0), (0.0, 0), (0.04, 1), (0.9, 1), (1.4, 1), (1.5, 2), (2.5, 3), (12345.6, 12346), (7, 7), (-0.5, None)],
)
def test_the_speed_is_a_whole_number_and_only_a_training_that_stands_still_has_none(
    reported: object, shown: int | None
) -> None:
    progress = Progress.from_object({"step": 3, "examplesPerSecond": reported})
    assert progress is not None
    assert progress.examples_per_second == shown
