"""The pods of jobs that run are asked for their progress, few at a time, and for their stacks."""

from __future__ import annotations

import asyncio
import json
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
from dtj.engine.progress import SILENCE, StackRequests
from dtj.engine.queue import WorkQueue
from dtj.engine.supervision import Supervisor
from support.elastic_world import ElasticWorld
from support.status_ports import StatusPorts
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


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> StatusPorts:
    ports = StatusPorts()
    monkeypatch.setattr(progress, "fetch", ports.fetch)
    return ports


def reader_of(ports: StatusPorts, metrics: Metrics | None = None) -> progress.ProgressReader:
    def now() -> datetime:
        return NOW + timedelta(seconds=loop_time())

    return progress.ProgressReader(
        ports.state, ports.queue, metrics=metrics or Metrics(), now=now, supervisor=Supervisor()
    )


@virtual_time
async def test_of_the_replica_that_knows_the_latest_pod_is_asked(ports: StatusPorts) -> None:
    world = running(seconds=0)
    world.set_pod("worker-0", Phase.FAILED, exit_code=75)
    world.advance(30)
    world.start()
    assert world.is_true(Condition.PODS_READY)
    memory = ports.add(world.job, world.pods.values())
    await reader_of(ports).ask_all()
    assert [asked for asked, _ in ports.asked] == ["digits-worker-0-r1"]
    assert memory.progress is not None
    assert memory.progress.progress.step == 7


@virtual_time
async def test_of_more_metrics_than_a_status_takes_the_first_are_kept_and_of_a_long_name_the_beginning(
    ports: StatusPorts,
) -> None:
    world = running(seconds=0)
    memory = ports.add(world.job, world.pods.values())
    given = {"a" * 70: "0.5", "a" * 80: "0.6", "words": "w" * 33, "none": None, **{f"m{n}": "1" for n in range(40)}}

    async def answer(_: str) -> bytes:
        return json.dumps({"step": 7, "metrics": given}).encode()

    ports.answer = answer
    await reader_of(ports).ask_all()
    assert memory.progress is not None
    shown = memory.progress.progress
    assert (shown.step, shown.metrics) == (7, {"a" * 64: "0.5", **{f"m{n}": "1" for n in range(31)}})


@virtual_time
async def test_pods_that_are_no_members_are_asked_whether_they_are_ready_to_join(ports: StatusPorts) -> None:
    world = ElasticWorld(job(roles={"worker": 2, "evaluator": 1}, elastic={"maxReplicas": 4})).start()
    wanted = job(roles={"worker": 4, "evaluator": 1}, elastic={"maxReplicas": 4})
    world.job = replace(wanted, status=world.job.status, generation=2)
    world.settle().all_run()
    memory = ports.add(world.job, world.pods.values())
    answers = {"digits-worker-0": b'{"step": 7}', "digits-worker-2": b'{"phase": "Waiting"}', "digits-worker-3": b"{}"}

    async def answer(address: str) -> bytes:
        return answers[address]

    ports.answer = answer
    await reader_of(ports).ask_all()
    assert [asked for asked, _ in ports.asked] == ["digits-worker-2", "digits-worker-3", "digits-worker-0"]
    assert memory.waiting == {world.pods["digits-worker-2"].uid}


@virtual_time
async def test_an_answer_that_repeats_is_as_old_as_the_first_and_its_place_is_another_once_pods_were_not_ready(
    ports: StatusPorts,
) -> None:
    world = running(seconds=0)
    memory = ports.add(world.job, world.pods.values())
    reader = reader_of(ports)

    async def seen() -> tuple[datetime, float]:
        await reader.ask_all()
        assert memory.progress is not None
        return memory.progress.at, memory.progress.still_for.total_seconds()

    first, still = await seen()
    assert still == 0.0
    await asyncio.sleep(30.0)
    at, still = await seen()
    assert (at, round(still)) == (first, 30)
    world.advance(60)
    world.sees("worker-1", Phase.PENDING)
    world.all_run()
    ports.state.jobs.put(kept(replace(world.job, resource_version="2")))
    assert await seen() == (first, 0.0)


@virtual_time
async def test_that_time_passes_is_known_and_no_news(ports: StatusPorts) -> None:
    world = running(seconds=0)
    memory = ports.add(world.job, world.pods.values())
    told: list[tuple[int, int]] = []
    for seconds in (5, 15):

        async def answer(_: str, seconds: int = seconds) -> bytes:
            return json.dumps({"step": 5, "seconds": {"training": seconds}}).encode()

        ports.answer = answer
        ports.queue = WorkQueue(backoff=SILENCE)
        await reader_of(ports).ask_all()
        await asyncio.sleep(30.0)
        assert memory.progress is not None
        assert memory.progress.sums is not None
        told.append((memory.progress.sums.seconds.training, len(ports.queue)))
    assert told == [(5, 1), (15, 0)]


@virtual_time
async def test_answers_and_silences_are_counted(ports: StatusPorts) -> None:
    async def silence(_: str) -> None: ...

    world, metrics = running(seconds=0), Metrics()
    ports.add(world.job, world.pods.values())
    for answer in (ports.answer, silence):
        ports.answer = answer
        await reader_of(ports, metrics).ask_all()
    for result in ("read", "silent"):
        assert metrics.registry.get_sample_value("dtj_progress_reads_total", {"result": result}) == 1


@virtual_time
async def test_twenty_pods_are_asked_in_a_second_at_most_and_none_of_a_job_that_is_gone(ports: StatusPorts) -> None:
    """An answer causes a write of a status at most: all jobs together cause twenty in a second."""
    world = running(seconds=0)
    for number in range(60):
        ports.add_like(world.job, [world.pods["digits-worker-0"]], number=number)

    async def answer(_: str) -> bytes:
        ports.state.jobs.remove(("default", "job-59"), uid="uid-59")
        return b'{"step": 7}'

    ports.answer = answer
    await reader_of(ports).ask_all()
    at = ports.times("default")
    assert len(at) == 59
    assert max(sum(begin <= one < begin + 0.999 for one in at) for begin in at) == 20


@virtual_time
async def test_slow_pods_of_one_namespace_delay_those_of_no_other(ports: StatusPorts) -> None:
    world = running(seconds=0)
    for number in range(1001):
        namespace = "other" if number == 1000 else "slow"
        ports.add_like(world.job, [world.pods["digits-worker-0"]], number=number, namespace=namespace)

    async def answer(address: str) -> bytes:
        await asyncio.sleep(2.9 if address == "slow" else 0.0)
        return b'{"step": 7}'

    ports.answer = answer
    task = asyncio.create_task(reader_of(ports).run())
    await asyncio.sleep(205.0)
    task.cancel()
    assert len(ports.times("other")) == 20
    assert all(later - earlier < 11.0 for earlier, later in pairwise(ports.times("other")))
    assert len(ports.times("slow")) > 1000
