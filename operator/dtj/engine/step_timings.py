"""Asks training replicas for their step times; :mod:`dtj.core.policies.straggler` says who is slow, and what follows.

The load is limited: a few requests at a time, only for jobs whose progress is known, at most :data:`MAX_ASKED` replicas
of each job, and more rarely than the replica that reports the job's progress. Namespaces take turns. A job whose pods
publish nothing to compare is asked more and more rarely. Values that are not numbers are ignored.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.lenient import MAX_INTEGER
from dtj.api.spec import COLLECTIVE, JobSpec
from dtj.core.observed import Pod, Straggler
from dtj.core.policies.straggler import MIN_REPLICAS, Reading, lasting, slow, streaks
from dtj.core.replicas import Replica, possible_members
from dtj.engine.job_store import JobRecord
from dtj.engine.progress import asked, decoded, pod_of
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState, StepTimings
from dtj.engine.supervision import COMPARISON, Supervisor
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


class StragglerFinder:
    """Compares the replicas of running jobs, and has a job planned when others are slow than before."""

    def __init__(self, state: ClusterState, queue: WorkQueue[Key], *, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._state = state
        self._queue = queue
        self._comparisons: FairWork[Key] = FairWork(self._compare_now, places=JOBS_AT_ONCE)

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

    async def _compare_now(self, key: Key) -> None:
        """One comparison; whatever pods answer, those of other jobs are compared."""
        with self._supervisor.sparing(COMPARISON):
            await self._compare_replicas(key)

    async def _compare_replicas(self, key: Key) -> None:
        """Compare the replicas of a job as it is now, if there still are enough."""
        record = self._state.jobs.get(key)
        if record is None or not self._is_due(record) or (spec := (job := self._state.job_of(record)).spec) is None:
            return
        pods = self._whom_to_ask(job, spec)
        if len(pods) >= MIN_REPLICAS:
            await self._compare(job, spec, pods)

    def _is_due(self, record: JobRecord) -> bool:
        cache = self._state.caches.of(record.uid)
        return record.running and cache.progress is not None and not cache.step_timings.asking.wait

    def _whom_to_ask(self, job: Job, spec: JobSpec) -> dict[Replica, Pod]:
        found = {}
        for replica in possible_members(spec)[:MAX_ASKED]:
            pod = pod_of(self._state, job, replica)
            if pod is not None and not pod.main_container_ended and not pod.terminating:
                found[replica] = pod
        return found

    async def _compare(self, job: Job, spec: JobSpec, pods: dict[Replica, Pod]) -> None:
        timings = self._state.caches.of(job.uid).step_timings
        readings: dict[str, Reading] = {}
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for replica, pod in pods.items():
                group.create_task(self._ask(replica, pod, readings, slots))
        uids = {replica.hostname: pod.uid for replica, pod in pods.items()}
        before = {
            name: reading for name, reading in timings.readings.items() if timings.uids.get(name) == uids.get(name)
        }
        in_step = spec.strategy in COLLECTIVE
        self._note(job, timings, slow(before, readings, in_step=in_step))
        timings.readings, timings.uids = readings, uids
        speaks = sum(1 for reading in readings.values() if reading.step_seconds is not None or not in_step)
        if speaks >= MIN_REPLICAS:
            timings.asking.succeeded()
        else:
            timings.asking.failed(SILENCE)

    async def _ask(self, replica: Replica, pod: Pod, readings: dict[str, Reading], slots: asyncio.Semaphore) -> None:
        async with slots:
            answer = decoded(await asked(pod, self._state.platform))
        if answer is not None:
            readings[replica.hostname] = read_step_timing(answer, at=loop_time())

    def _note(self, job: Job, timings: StepTimings, found: tuple[Straggler, ...]) -> None:
        timings.in_a_row = streaks(timings.in_a_row, found)
        named = lasting(found, timings.in_a_row)
        changed = {each.hostname for each in named} != {each.hostname for each in timings.stragglers}
        if changed:
            timings.stragglers = named
            self._queue.add(job.key)


def read_step_timing(answer: JsonObject, *, at: float) -> Reading:
    """What an answer reports of the replica's own steps, read at ``at``."""
    step = answer.get("step")
    return Reading(
        at,
        step=step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_INTEGER else None,
        step_seconds=_duration(answer.get("stepSeconds")),
    )


def _duration(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value <= MAX_INTEGER else None
