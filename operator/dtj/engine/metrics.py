"""Prometheus metrics of the operator. No label holds a job's name: their number must not grow with the jobs.

:data:`TABLE` is the one list of them: the metrics are made from it, and so is docs/metrics.md.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import GaugeMetricFamily, Metric

from dtj import __version__
from dtj.api.goodput import HOLDS_NOTHING, Goodput, Use
from dtj.api.job import Job
from dtj.api.names import Condition, Reason, State
from dtj.api.status import JobStatus
from dtj.core.platform import Platform
from dtj.core.pod_failure import PodFailureClass
from dtj.core.policies import deadlines, goodput
from dtj.engine.job_store import JobStore
from dtj.engine.queue import QueueObserver, WorkQueue
from dtj.engine.state import JobCache
from dtj.engine.supervision import WITHOUT_TASK
from dtj.kube.gateway import Resource
from dtj.kube.records import Key

QUEUE_NAME: Final = "jobs"

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SLOW: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Described:
    """One metric: its name without the suffix that Prometheus' types add, its labels, and what it shows."""

    kind: Literal["gauge", "counter", "histogram", "info"]
    name: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _QUICK

    @property
    def shown(self) -> str:
        """The name by which a query finds it."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


JOBS: Final = Described("gauge", "dtj_jobs", "Jobs by state.", ("state",))
STALLED: Final = Described(
    "gauge", "dtj_jobs_stalled", "Jobs that have not ended and whose condition ProgressStalled is True."
)
FINISHED: Final = Described(
    "counter",
    "dtj_jobs_finished",
    "Jobs that ended. outcome is Succeeded or Failed. class is the failure class as in "
    "status.rootCause.class, or None if no replica failed.",
    ("outcome", "class"),
)
RESTARTS: Final = Described("counter", "dtj_restarts", "Restarts by cause, as in status.restarts.", ("class",))
LAUNCH: Final = Described(
    "histogram",
    "dtj_launch_seconds",
    "Seconds from the creation, resumption or admission of a job until FirstPod (the "
    "operator creates its pods) and until AllReady (all pods are ready for the first time).",
    ("until",),
    _SLOW,
)
RECOVERY: Final = Described(
    "histogram",
    "dtj_recovery_seconds",
    "Seconds from the loss of a replica until all replicas are ready again, including backoff.",
    buckets=_SLOW,
)
SPENT: Final = Described(
    "counter",
    "dtj_job_seconds",
    "Seconds of jobs by what they went to, as in status.goodput.seconds. They count when a status is written, and "
    "those of training once a checkpoint covers them or the job has ended. Those of TFJobs do not count.",
    ("state",),
)
ACCELERATORS: Final = Described(
    "counter",
    "dtj_accelerator_seconds",
    "The same times the accelerators that the job asks for, by their resource: those of the profiles. A job that is "
    "queued or suspended holds none.",
    ("resource", "state"),
)
REPEATED: Final = Described(
    "counter",
    "dtj_repeated_steps",
    "Steps that were taken again after a restart, as in status.goodput.repeatedSteps.",
)
MEMBERS: Final = Described(
    "counter",
    "dtj_members_changed",
    "Changes of the replicas of elastic jobs that train together, while their pods stay.",
)
PROGRESS: Final = Described(
    "counter",
    "dtj_progress_reads",
    "Requests to pods for their progress, by result: read, or silent (no answer in time, or "
    "an answer that cannot be read).",
    ("result",),
)
RECONCILE: Final = Described(
    "histogram", "dtj_reconcile_seconds", "Seconds of one pass over a job, by result: success or error.", ("result",)
)
REQUESTS: Final = Described(
    "counter",
    "dtj_api_requests",
    "Calls to the API server, by verb, resource and HTTP status (0: no answer). Of pods, services, "
    "networkpolicies and persistentvolumeclaims, a list after those of the start means that a watch lost its position.",
    ("verb", "resource", "code"),
)
REQUEST_SECONDS: Final = Described(
    "histogram", "dtj_api_request_seconds", "Seconds of calls to the API server, without watches.", ("verb",)
)
THROTTLED: Final = Described(
    "gauge", "dtj_api_throttled", "1 while the operator makes fewer calls because the API server answers 429."
)
DROPPED: Final = Described(
    "gauge",
    "dtj_tfjob_record_dropped",
    "1 while nothing is done for TFJobs because their CRD drops status.dtj.",
)
DEFECTS: Final = Described(
    "counter",
    "dtj_defects",
    "Unexpected errors, by the part of the operator that met them. The part goes on; the log has each error.",
    ("part",),
)
UNREADABLE: Final = Described(
    "counter",
    "dtj_unreadable_objects",
    "Objects of the API server that the operator could not read, by kind. It leaves them out; the log names each once.",
    ("kind",),
)
LEADER: Final = Described("gauge", "dtj_leader", "1 if this operator runs jobs, 0 if it stands by.")
BUILD: Final = Described("info", "dtj_build", "Always 1. The label is the version of the operator.", ("version",))
DEPTH: Final = Described("gauge", "workqueue_depth", "Jobs that wait for a worker.", ("name",))
ADDS: Final = Described("counter", "workqueue_adds", "Jobs that were added to the queue.", ("name",))
RETRIES: Final = Described(
    "counter", "workqueue_retries", "Jobs that were added to the queue again because their pass failed.", ("name",)
)
WAITED: Final = Described(
    "histogram", "workqueue_queue_duration_seconds", "Seconds that jobs wait for a worker.", ("name",)
)
WORKED: Final = Described(
    "histogram", "workqueue_work_duration_seconds", "Seconds that workers spend on a job.", ("name",)
)
UNFINISHED: Final = Described(
    "gauge",
    "workqueue_unfinished_work_seconds",
    "Sum of the seconds that the running passes have taken so far.",
    ("name",),
)
LONGEST: Final = Described(
    "gauge",
    "workqueue_longest_running_processor_seconds",
    "Seconds of the longest running pass. The liveness probe fails if no call of a pass is answered for 600.",
    ("name",),
)

TABLE: Final = tuple(found for found in list(globals().values()) if isinstance(found, Described))
"""All metrics, in the order of the documents."""

RESTART_CLASSES: Final = ("user", "outOfMemory", "preemption", "disruption")
NO_CLASS: Final = "None"


class Metrics(QueueObserver):
    """All of the operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._watched: list[tuple[JobStore, WorkQueue[Key]]] = []
        self._register(lambda: _jobs_by_state([jobs for jobs, _ in self._watched]))
        self._register(lambda: _running_passes([queue for _, queue in self._watched]))
        self._adds = self._counter(ADDS).labels(QUEUE_NAME)
        self._retries = self._counter(RETRIES).labels(QUEUE_NAME)
        self._waited = self._histogram(WAITED).labels(QUEUE_NAME)
        self._worked = self._histogram(WORKED).labels(QUEUE_NAME)
        self._reconcile = self._histogram(RECONCILE)
        self._requests = self._counter(REQUESTS)
        self._request_seconds = self._histogram(REQUEST_SECONDS)
        self._finished = self._counter(FINISHED)
        self._restarts = self._counter(RESTARTS)
        self._launch = self._histogram(LAUNCH)
        self._recovery = self._histogram(RECOVERY)
        self._spent = self._counter(SPENT)
        self._accelerators = self._counter(ACCELERATORS)
        self._repeated = self._counter(REPEATED)
        self._members = self._counter(MEMBERS)
        self._progress = self._counter(PROGRESS)
        self._defects = self._counter(DEFECTS)
        self._unreadable = self._counter(UNREADABLE)
        for name in RESTART_CLASSES:  # a rate needs the zero before the first
            self._restarts.labels(name)
        for use in Use:
            self._spent.labels(str(use))
        for part in WITHOUT_TASK:
            self._defects.labels(part)
        for result in ("read", "silent"):
            self._progress.labels(result)
        self._finished.labels(str(State.SUCCEEDED), NO_CLASS)
        for kind in (NO_CLASS, *PodFailureClass):
            if kind != PodFailureClass.COMPLETED:
                self._finished.labels(str(State.FAILED), str(kind))
        Info(BUILD.name, BUILD.text, registry=self.registry).info({"version": __version__})

    def _counter(self, described: Described) -> Counter:
        return Counter(described.name, described.text, described.labels, registry=self.registry)

    def _histogram(self, described: Described) -> Histogram:
        return Histogram(
            described.name, described.text, described.labels, buckets=described.buckets, registry=self.registry
        )

    def _register(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.registry.register(_Collected(collect))

    def added(self) -> None:
        self._adds.inc()

    def started(self, *, waited: float) -> None:
        self._waited.observe(waited)

    def finished(self, *, worked: float) -> None:
        self._worked.observe(worked)

    def retried(self) -> None:
        self._retries.inc()

    def called(self, verb: str, resource: Resource, status: int, seconds: float) -> None:
        """A call to the API server ended; fits :data:`dtj.kube.client.Observe`."""
        self._requests.labels(verb, resource.plural, str(status)).inc()
        if verb != "watch":
            self._request_seconds.labels(verb).observe(seconds)

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Time one pass."""
        started = time.perf_counter()
        result = "error"
        try:
            yield
            result = "success"
        finally:
            self._reconcile.labels(result).observe(time.perf_counter() - started)

    def asked_for_progress(self, *, answered: bool) -> None:
        """A pod was asked how far it is."""
        self._progress.labels("read" if answered else "silent").inc()

    def defects(self, part: str, number: int) -> None:
        """So many unexpected errors were met by a part of the engine: 0 when it begins its work."""
        self._defects.labels(part).inc(number)

    def unreadable(self, kind: str) -> None:
        """An object of this kind cannot be read."""
        self._unreadable.labels(kind).inc()

    def watch_state(self, described: Described, holds: Callable[[], bool]) -> None:
        """Report by this gauge whether something is so, found out when asked."""
        self._register(lambda: [_family(described, [((), float(holds()))])])

    def watch(self, jobs: JobStore, queue: WorkQueue[Key]) -> None:
        """Report the jobs of an engine, how many wait, and how long passes have been running, found out when asked."""
        self._watched.append((jobs, queue))

    def unwatch(self, jobs: JobStore) -> None:
        """Report nothing more of these: their engine has ended."""
        self._watched = [each for each in self._watched if each[0] is not jobs]

    def note_status(
        self, job: Job, after: JobStatus, *, cache: JobCache, now: datetime, platform: Platform | None = None
    ) -> None:
        """``after`` was written in place of ``job``'s status; ``platform`` is what its pods are made for."""
        self._note_start(job, after, now=now)
        self._note_restarts(job.status, after, cache=cache, now=now)
        self._note_goodput(job, after.goodput, platform or Platform())
        if after.world is not None and after.world != job.status.world:
            self._members.inc()
        if after.terminal and not job.status.terminal:
            succeeded = after.is_true(Condition.COMPLETE)
            kind = after.root_cause.kind if after.root_cause is not None and not succeeded else ""
            outcome = State.SUCCEEDED if succeeded else State.FAILED
            self._finished.labels(str(outcome), kind if kind in list(PodFailureClass) else NO_CLASS).inc()

    def _note_goodput(self, job: Job, after: Goodput | None, platform: Platform) -> None:
        before = job.status.goodput
        if after is None or after == before:
            return
        counted, held = goodput.spent(before), goodput.accelerators_of(job, platform)
        for use, seconds in goodput.spent(after).items():
            more = max(0, seconds - counted[use])  # less, where somebody else has written the status
            self._spent.labels(str(use)).inc(more)
            for resource, number in held.items() if use not in HOLDS_NOTHING else ():
                self._accelerators.labels(resource, str(use)).inc(more * number)
        self._repeated.inc(max(0, after.repeated_steps - (before.repeated_steps if before is not None else 0)))

    def _note_start(self, job: Job, after: JobStatus, *, now: datetime) -> None:
        begun, before = deadlines.could_begin_at(job, after), job.status
        if begun is None:
            return
        seconds = max((now - begun).total_seconds(), 0.0)
        if after.start_time is not None and before.start_time is None:
            self._launch.labels("FirstPod").observe(seconds)
        if after.ready_time is not None and before.ready_time is None:
            self._launch.labels("AllReady").observe(seconds)

    def _note_restarts(self, before: JobStatus, after: JobStatus, *, cache: JobCache, now: datetime) -> None:
        earlier, later = (status.restarts.model_dump(by_alias=True) for status in (before, after))
        more = {kind: later[kind] - earlier[kind] for kind in RESTART_CLASSES}
        for kind, number in more.items():
            if number > 0:
                self._restarts.labels(kind).inc(number)
        restarting = after.when_true(Condition.RESTARTING)
        waits = restarting is not None and restarting.reason == Reason.BACKOFF
        if cache.lost_at is None and (waits or any(number > 0 for number in more.values())):
            cache.lost_at = now
        if after.is_true(Condition.PODS_READY) and cache.lost_at is not None:
            self._recovery.observe(max((now - cache.lost_at).total_seconds(), 0.0))
        if after.start_time is None or after.terminal or after.is_true(Condition.PODS_READY):
            cache.lost_at = None


@dataclass(frozen=True, eq=False)
class _Collected:
    """What is found out each time that somebody asks."""

    collect: Callable[[], Iterable[Metric]]


def _family(described: Described, values: Iterable[tuple[tuple[str, ...], float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(described.name, described.text, labels=described.labels)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _jobs_by_state(stores: Sequence[JobStore]) -> Iterable[Metric]:
    known = {str(state): 0 for state in State}
    records = [record for store in stores for record in store]
    tally = Tally(record.state or str(State.PENDING) for record in records)
    yield _family(JOBS, (((state,), number) for state, number in (known | tally).items()))
    yield _family(STALLED, [((), sum(record.stalled for record in records))])


def _running_passes(queues: Sequence[WorkQueue[Key]]) -> Iterable[Metric]:
    longest = max((queue.longest_running() for queue in queues), default=0.0)
    yield _family(DEPTH, [((QUEUE_NAME,), float(sum(map(len, queues))))])
    yield _family(UNFINISHED, [((QUEUE_NAME,), sum(queue.unfinished_work() for queue in queues))])
    yield _family(LONGEST, [((QUEUE_NAME,), longest)])
