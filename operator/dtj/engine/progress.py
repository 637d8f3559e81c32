"""How far each job is, asked of the pod that knows: the chief, or the first worker. And the port by which pods are
asked. Of an elastic job, pods that wait to join the others are asked too.

A pod that does not answer is asked at growing intervals, and no pod is waited for while others are asked. Namespaces
take turns: pods that answer slowly delay those of their own namespace. A pod may lie, hang, flood or be gone: each
answer has a time limit and a size limit, and what makes no sense in it is left out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NoReturn

from dtj.api.goodput import Sums
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.status import Progress
from dtj.core.membership import World, has_world, told_of_members, world_of
from dtj.core.observed import Pod, SeenProgress, Silence
from dtj.core.platform import Platform
from dtj.core.pod_state import replica_of
from dtj.core.replicas import Replica, deciding_replica, incarnation, pod_name
from dtj.core.status import is_ready
from dtj.engine.metrics import Metrics
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.supervision import QUESTION, Supervisor
from dtj.kube.decoding import Unreadable, decode_object
from dtj.kube.fairness import FairSlots, FairWork
from dtj.kube.records import Key
from dtj.kube.waiting import Backoff, loop_time

TIMEOUT: Final = 3.0
"""Seconds that an answer may take."""

MAX_BYTES: Final = 64 * 1024
"""Size of the largest answer that is read."""


async def fetch(host: str, port: int, *, request: str = "GET /status", timeout: float = TIMEOUT) -> bytes | None:
    """The body of the answer; None if none came in time, or one that is too large."""
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_BYTES)
            try:
                writer.write(f"{request} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) <= MAX_BYTES and (more := await reader.read(MAX_BYTES)):
                    answer += more
            finally:
                writer.close()
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        if len(answer) <= MAX_BYTES and head.split(b" ", 2)[1:2] == [b"200"]:
            return body
    return None


async def asked(pod: Pod, platform: Platform, *, request: str = "GET /status") -> bytes | None:
    """What a replica's pod answers on its status port; None if it does not."""
    replica = replica_of(pod)
    if replica is None:
        return None
    port = platform.network.status_port(role=replica.role, index=replica.index)
    return await fetch(pod.ip, port, request=request)


def decoded(answer: bytes | None) -> JsonObject | None:
    """The JSON object of an answer; None if it is none, or if there is no answer."""
    with suppress(Unreadable):
        return decode_object(answer) if answer is not None else None
    return None


INTERVAL: Final = 10.0
"""Seconds between two questions to a pod."""

QUESTIONS_PER_SECOND: Final = 20
"""Questions to pods that begin in a second, over all jobs. An answer causes one write of a status at most, so this
limits the writes too: with more than 200 running jobs, the jobs of the largest namespaces are asked more rarely."""

AT_ONCE: Final = 64
"""Pods that are asked at the same time; one namespace has half of them."""

WAITING: Final = "Waiting"
"""The phase of a replica that has imported all and is no member yet."""

SILENCE: Final = Backoff(base=INTERVAL, cap=120.0)
"""After how long a pod that did not answer is asked again: an image of a user's own may serve nothing. After a
quarter of the time at most in which it may stall."""


def pod_of(state: ClusterState, job: Job, replica: Replica) -> Pod | None:
    """The job's own pod that runs a replica now, where it is there and can be reached."""
    pod = state.pods.get((job.namespace, pod_name(job, replica, incarnation(job.status, replica))))
    return pod if pod is not None and job.owns(pod) and replica_of(pod) == replica and pod.ip else None


class ProgressReader:
    """Asks the pods of running jobs, and has a job planned when its answer is another."""

    def __init__(
        self,
        state: ClusterState,
        queue: WorkQueue[Key],
        *,
        metrics: Metrics,
        now: Callable[[], datetime],
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._state = state
        self._queue = queue
        self._metrics = metrics
        self._now = now
        self._questions: FairWork[Key] = FairWork(self._ask_now, places=AT_ONCE, pause=1 / QUESTIONS_PER_SECOND)

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        await self._questions.run(self._add_questions, every=INTERVAL)

    async def ask_all(self) -> None:
        """One question to each pod whose turn it is, :data:`QUESTIONS_PER_SECOND` of them in a second."""
        self._add_questions()
        await self._questions.until_done()

    def _add_questions(self) -> None:
        for record in self._state.jobs:
            if record.running and not self._state.caches.of(record.uid).asking.wait:
                self._questions.add(record.namespace, record.key)

    async def _ask_now(self, key: Key) -> None:
        """One question; whatever a pod answers, the others are asked."""
        with self._supervisor.sparing(QUESTION):
            await self._ask(key)

    async def _ask(self, key: Key) -> None:
        """Ask the pod of a job as it is now, if there still is a pod to be asked."""
        record = self._state.jobs.get(key)
        job = self._state.job_of(record) if record is not None and record.running else None
        world = await self._ask_the_waiting(job) if job is not None else None
        members = world.members if world is not None else None
        replica = deciding_replica(job.spec, members) if job is not None and job.spec is not None else None
        pod = pod_of(self._state, job, replica) if job is not None and replica is not None else None
        if job is None or pod is None or not is_ready(pod):
            return
        answer = decoded(await asked(pod, self._state.platform))
        progress = Progress.from_object(answer)
        self._metrics.asked_for_progress(answered=progress is not None)
        if progress is None:
            self._not_answered(job, pod)
        else:
            self._received(job, pod, progress, Sums.from_object(answer))

    async def _ask_the_waiting(self, job: Job) -> World | None:
        """Learn which pods are ready to join an elastic job. Returns the replicas that train together, as far as this
        differs from all."""
        spec = job.spec
        if spec is None or not has_world(job, spec):
            return None
        told = told_of_members(job, filter(job.owns, self._state.pods.of(job).values()))
        world = world_of(job, spec, (pod.world for pod in told))
        assert world is not None
        outside = [pod for pod in told if pod.ip and is_ready(pod) and replica_of(pod) not in world.members]
        answers = await asyncio.gather(*(asked(pod, self._state.platform) for pod in outside[:AT_ONCE]))
        waiting = frozenset(
            pod.uid
            for pod, body in zip(outside, answers, strict=False)
            if (said := Progress.from_object(decoded(body))) is not None and said.phase == WAITING
        )
        cache = self._state.caches.of(job.uid)
        if waiting != cache.waiting:
            cache.waiting = waiting
            self._queue.add(job.key)
        return world

    def _received(self, job: Job, pod: Pod, progress: Progress, sums: Sums | None) -> None:
        """An answer, which may show that the training advances, or be evidence that it stands still. That time passes
        is no news: ``sums`` wait for the next status."""
        cache, now = self._state.caches.of(job.uid), loop_time()
        ready = job.status.condition(Condition.PODS_READY)
        since = ready.last_transition_time if ready is not None else ""
        place = (pod.uid, since, progress.place)
        if cache.still_since[0] != place:
            cache.still_since = (place, now)
        still_for = timedelta(seconds=now - cache.still_since[1])
        before, was_silent = cache.progress, cache.silence is not None
        known = before is not None and (before.pod_uid, before.progress) == (pod.uid, progress)
        at = before.at if before is not None and known else self._now()
        cache.progress = SeenProgress(pod.uid, progress, at, still_for, sums)
        cache.asking.succeeded()
        cache.silence = None
        if not known or was_silent or _is_news(job, "True", still_for):
            self._queue.add(job.key)

    def _not_answered(self, job: Job, pod: Pod) -> None:
        """No answer: no evidence of anything, but worth to be known where stalls are to be detected."""
        cache, now = self._state.caches.of(job.uid), loop_time()
        if cache.silence is None or cache.silence.pod.uid != pod.uid:
            cache.silent_since = now
        cache.silence = Silence(pod, timedelta(seconds=now - cache.silent_since))
        timeout = _stall_timeout(job)
        cache.asking.failed(SILENCE, at_most=timeout.total_seconds() / 4 if timeout is not None else math.inf)
        if _is_news(job, "Unknown", cache.silence.lasted):
            self._queue.add(job.key)


def _is_news(job: Job, status: str, lasted: timedelta) -> bool:
    """Whether what has lasted so long makes the condition ProgressStalled say ``status``, which it does not say yet."""
    timeout, reported = _stall_timeout(job), job.status.condition(Condition.PROGRESS_STALLED)
    return timeout is not None and lasted >= timeout and (reported is None or reported.status != status)


def _stall_timeout(job: Job) -> timedelta | None:
    seconds = job.spec.run_policy.stall_timeout_seconds if job.spec is not None else None
    return timedelta(seconds=seconds) if seconds is not None else None


STACKS_AT_ONCE: Final = 16
"""Pods that are asked at the same time; one namespace has half of them."""


class StackRequests:
    """Has the pods of a job that stands still print where they are: what a collective waits for is in no other place.

    The request is sent once, and nobody waits for an answer. An image that does not know it answers 404.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._slots = FairSlots(STACKS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, pods: Sequence[Pod]) -> None:
        """Tell them; returns at once."""
        for pod in pods:
            task = asyncio.create_task(self._ask(pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, pod: Pod) -> None:
        async with self._slots.of(pod.namespace):
            await asked(pod, self._platform, request="POST /stacks")
