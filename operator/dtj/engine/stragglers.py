"""Finds replicas that are slower than their peers: asks training replicas for their step times, and compares them.

Where each step waits for all replicas, all have the same pace: only a replica itself knows how long its own part of a
step takes (``stepSeconds``). An event reports slow replicas when they first show; nothing else is done.

The load is limited: a few requests at a time, only for jobs whose progress is known, at most :data:`MAX_ASKED` replicas
of each job, and more rarely than the replica that reports the job's progress. Namespaces take turns. A job whose pods
publish nothing to compare is asked more and more rarely. Values that are not numbers are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from statistics import median
from typing import Final, NoReturn

from dtj.api.job import Job
from dtj.api.status import MAX_INTEGER, MAX_STRAGGLERS
from dtj.core.observed import Pod, Straggler
from dtj.core.replicas import Replica, training_replicas
from dtj.engine.job_store import JobRecord
from dtj.engine.progress import asked, decoded, pod_of
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.kube.fairness import FairWork
from dtj.kube.records import Key
from dtj.kube.waiting import Backoff, loop_time

INTERVAL: Final = 30.0
"""Seconds between two questions to a pod."""

JOBS_AT_ONCE: Final = 8
"""Jobs whose pods are asked at the same time; one namespace has half of them."""

AT_ONCE: Final = 4
"""Pods of one job that are asked at the same time."""

MAX_ASKED: Final = 64
"""Replicas of one job that are asked: the first ones."""

SILENCE: Final = Backoff(base=INTERVAL, cap=900.0)
"""After how long a job is asked again whose pods have nothing to compare."""

FACTOR: Final = 1.5
"""So much longer than the median a slow replica's steps take."""

MIN_REPLICAS: Final = 3
"""Replicas without which there is no median to speak of."""

READINGS: Final = 3
"""In this many readings in a row a replica must be slow to be named."""


class StragglerFinder:
    """Compares the replicas of running jobs, and has a job planned when others are slow than before."""

    def __init__(self, state: ClusterState, queue: WorkQueue[Key]) -> None:
        self._state = state
        self._queue = queue
        self._comparisons: FairWork[Key] = FairWork(self._compare, places=JOBS_AT_ONCE)

    async def run(self) -> NoReturn:
        """Compare until cancelled."""
        await self._comparisons.run(self._add_jobs, every=INTERVAL)

    async def compare_all(self) -> None:
        """One comparison of each job whose turn it is."""
        self._add_jobs()
        await self._comparisons.until_done()

    def _add_jobs(self) -> None:
        for record in self._state.jobs:
            if self._is_due(record):
                self._comparisons.add(record.namespace, record.key)

    def _is_due(self, record: JobRecord) -> bool:
        cache = self._state.caches.of(record.uid)
        return record.running and cache.progress is not None and loop_time() >= cache.step_timings.ask_after

    async def _compare(self, key: Key) -> None:
        """Compare the replicas of a job as it is now, if there still are enough."""
        record = self._state.jobs.get(key)
        pods = self._whom_to_ask(record.job()) if record is not None and self._is_due(record) else {}
        if record is None or len(pods) < MIN_REPLICAS:
            return
        seconds: dict[str, float] = {}
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for hostname, pod in pods.items():
                group.create_task(self._ask(hostname, pod, seconds, slots))
        timings, found = self._state.caches.of(record.uid).step_timings, slow(seconds)
        timings.in_a_row = {each.hostname: timings.in_a_row.get(each.hostname, 0) + 1 for each in found}
        named = tuple(each for each in found if timings.in_a_row[each.hostname] >= READINGS)[:MAX_STRAGGLERS]
        if {each.hostname for each in named} != {each.hostname for each in timings.stragglers}:
            timings.stragglers = named
            self._queue.add(key)
        timings.silences = 0 if len(seconds) >= MIN_REPLICAS else timings.silences + 1
        timings.ask_after = loop_time() + SILENCE.delay(timings.silences) if timings.silences else 0.0

    def _whom_to_ask(self, job: Job) -> dict[str, Pod]:
        """The pods to compare, by host name."""
        replicas: tuple[Replica, ...] = training_replicas(job.spec) if job.spec is not None else ()
        found = ((replica.hostname, pod_of(self._state, job, replica)) for replica in replicas[:MAX_ASKED])
        return {
            hostname: pod
            for hostname, pod in found
            if pod is not None and not pod.main_container_ended and not pod.terminating
        }

    async def _ask(self, hostname: str, pod: Pod, seconds: dict[str, float], slots: asyncio.Semaphore) -> None:
        async with slots:
            body = await asked(pod, self._state.platform)
        own = read_step_seconds(body) if body is not None else None
        if own is not None:
            seconds[hostname] = own


def read_step_seconds(body: bytes) -> float | None:
    """How long an answer says that the replica's own part of a step takes; None if it does not say so."""
    value = (decoded(body) or {}).get("stepSeconds")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value <= MAX_INTEGER else None


def slow(seconds: Mapping[str, float]) -> tuple[Straggler, ...]:
    """Those replicas, by host name, whose own part of a step takes long, the slowest first."""
    if len(seconds) < MIN_REPLICAS:
        return ()
    usual = median(seconds.values())
    found = (Straggler(name, own / usual) for name, own in seconds.items() if own > FACTOR * usual)
    return tuple(sorted(found, key=lambda straggler: -straggler.times))
