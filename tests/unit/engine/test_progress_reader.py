"""The pods of jobs that run are asked for their progress, few at a time, and for their stacks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from builders import NOW, job, kept, pod
from dtj.api.names import Condition
from dtj.api.spec import Role
from dtj.core.observed import Phase
from dtj.core.platform import ClusterNetwork, Platform
from dtj.engine import progress
from dtj.engine.metrics import Metrics
from dtj.engine.progress import StackRequests
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.kube.informer import Change
from dtj.kube.records import Key
from support.elastic_world import ElasticWorld
from support.virtual_time import loop_time, virtual_time
from world import running


@dataclass(frozen=True)
class OnePort(ClusterNetwork):
    """All pods serve their progress on this port."""

    port: int = 0

    def status_port(self, *, role: Role, index: int) -> int:
        return self.port


async def test_stacks_are_asked_for_by_another_request_and_nobody_waits() -> None:
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


async def test_of_the_replica_that_knows_the_latest_pod_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_pods_that_are_no_members_are_asked_whether_they_are_ready_to_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ElasticWorld(job(roles={"worker": 2, "evaluator": 1}, elastic={"maxReplicas": 4})).start()
    wanted = job(roles={"worker": 4, "evaluator": 1}, elastic={"maxReplicas": 4})
    world.job = replace(wanted, status=world.job.status, generation=2)
    world.settle().all_run()
    state = ClusterState(world.platform)
    state.jobs.put(kept(world.job))
    state.caches.begin(world.job.uid)
    for name, there in world.pods.items():
        state.pods.apply(Change(None, replace(there, ip=name)))
    answers = {"digits-worker-0": b'{"step": 7}', "digits-worker-2": b'{"phase": "Waiting"}', "digits-worker-3": b"{}"}
    asked: list[str] = []

    async def fetch(host: str, port: int, **_: object) -> bytes:
        asked.append(host)
        return answers[host]

    monkeypatch.setattr(progress, "fetch", fetch)
    queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
    await progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW).ask_all()
    assert asked == ["digits-worker-2", "digits-worker-3", "digits-worker-0"]
    assert state.caches.of(world.job.uid).waiting == {world.pods["digits-worker-2"].uid}


@virtual_time
async def test_an_answer_that_repeats_is_as_old_as_the_first_and_its_place_is_another_once_pods_were_not_ready() -> (
    None
):
    world = running(seconds=0)
    state = ClusterState(world.platform)
    state.jobs.put(kept(world.job))
    state.caches.begin(world.job.uid)
    for there in world.pods.values():
        state.pods.apply(Change(None, replace(there, ip="10.0.0.1")))
    queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
    reader = progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW + timedelta(seconds=loop_time()))

    async def fetch(host: str, port: int, **_: object) -> bytes:
        return b'{"step": 7}'

    async def seen() -> tuple[datetime, float]:
        await reader.ask_all()
        shown = state.caches.of(world.job.uid).progress
        assert shown is not None
        return shown.at, shown.still_for.total_seconds()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "fetch", fetch)
        first, still = await seen()
        assert still == 0.0
        await asyncio.sleep(30.0)
        at, still = await seen()
        assert (at, round(still)) == (first, 30)
        world.advance(60)
        world.sees("worker-1", Phase.PENDING)
        world.all_run()
        state.jobs.put(kept(replace(world.job, resource_version="2")))
        assert await seen() == (first, 0.0)


@virtual_time
async def test_twenty_pods_are_asked_in_a_second_at_most_and_none_of_a_job_that_is_gone() -> None:
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
async def test_slow_pods_of_one_namespace_delay_those_of_no_other() -> None:
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
