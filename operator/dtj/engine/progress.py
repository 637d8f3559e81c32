"""How far each job is, asked of the pod that knows: the chief, or worker 0.

A pod may lie, hang, flood or be gone: each answer has a time limit and a size limit, what makes no sense in it is left
out, and who does not answer is asked ever more rarely. Nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, NoReturn

import msgspec

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.status import Progress
from dtj.core.observed import Pod, SeenProgress
from dtj.core.outcome import replica_of
from dtj.core.replicas import Replica, deciding_replica, incarnation, pod_name
from dtj.core.status import is_ready
from dtj.engine.metrics import Metrics
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.kube.backoff import Backoff
from dtj.kube.records import Key

INTERVAL: Final = 10.0
"""Seconds between two questions to a pod."""

AT_ONCE: Final = 32
"""Pods that are asked at the same time."""

TIMEOUT: Final = 3.0
"""Seconds that an answer may take."""

MOST_BYTES: Final = 64 * 1024
"""Size of the largest answer that is read."""

SILENCE: Final = Backoff(base=INTERVAL, cap=120.0)
"""After how long a pod that did not answer is asked again: an image of a user's own may serve nothing."""


async def fetch(host: str, port: int, *, request: str = "GET /status", timeout: float = TIMEOUT) -> bytes | None:
    """The body of the answer; None where none came in time, or one that is too large."""
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=MOST_BYTES)
            try:
                writer.write(f"{request} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) <= MOST_BYTES and (more := await reader.read(MOST_BYTES)):
                    answer += more
            finally:
                writer.close()
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        if len(answer) <= MOST_BYTES and head.split(b" ", 2)[1:2] == [b"200"]:
            return body
    return None


def read(body: bytes) -> Progress | None:
    """What an answer says of the training; None where there is nothing in it that can be read."""
    with suppress(msgspec.DecodeError, RecursionError):  # the latter of brackets in brackets
        return Progress.from_object(msgspec.json.decode(body))
    return None


def is_running(job: Job) -> bool:
    """Whether the pods of a job have something to tell: all of them run."""
    return not job.deleting and not job.status.terminal and job.status.is_true(Condition.PODS_READY)


def pod_of(state: ClusterState, job: Job, replica: Replica) -> Pod | None:
    """The job's own pod that runs a replica now, where it is there and can be reached."""
    pod = state.pods.get((job.namespace, pod_name(job.name, replica, incarnation(job.status, replica))))
    return pod if pod is not None and pod.owner_uid == job.uid and pod.ip else None


class ProgressReader:
    """Asks the pods of running jobs, and has a job planned when its answer is another."""

    def __init__(
        self, state: ClusterState, queue: WorkQueue[Key], *, metrics: Metrics, now: Callable[[], datetime]
    ) -> None:
        self._state = state
        self._queue = queue
        self._metrics = metrics
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.ask_all()

    async def ask_all(self) -> None:
        """One question to each pod whose turn it is."""
        asked = [(job, pod) for record in self._state.jobs if (pod := self._whom_to_ask(job := record.job)) is not None]
        async with asyncio.TaskGroup() as group:
            for job, pod in asked:
                group.create_task(self._ask(job, pod))

    def _whom_to_ask(self, job: Job) -> Pod | None:
        if job.spec is None or not is_running(job):
            return None
        memory = self._state.memories.of(job.uid)
        if asyncio.get_running_loop().time() < memory.ask_progress_after:
            return None
        replica = deciding_replica(job.spec)
        if replica is None:
            return None
        pod = pod_of(self._state, job, replica)
        return pod if pod is not None and is_ready(pod) else None

    async def _ask(self, job: Job, pod: Pod) -> None:
        replica = replica_of(pod)
        assert replica is not None
        port = self._state.platform.network.status_port(role=replica.role, index=replica.index)
        async with self._slots:
            body = await fetch(pod.ip, port)
        memory = self._state.memories.of(job.uid)
        progress = read(body) if body is not None else None
        self._metrics.asked_for_progress(answered=progress is not None)
        if progress is None:
            memory.silences += 1
            memory.ask_progress_after = asyncio.get_running_loop().time() + SILENCE.delay(memory.silences)
            return
        memory.silences = 0
        seen = SeenProgress(pod.uid, progress, self._now())
        if memory.progress is None or (memory.progress.pod_uid, memory.progress.progress) != (pod.uid, progress):
            memory.progress = seen
            self._queue.add(job.key)
