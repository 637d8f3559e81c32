"""Prometheus metrics of the operator. No label holds a job's name: their number must not grow with the jobs."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dtj.api.names import State
from dtj.engine.queue import QueueObserver, WorkQueue
from dtj.engine.stores import JobStore
from dtj.kube.gateway import Resource
from dtj.kube.records import Key

QUEUE_NAME: Final = "jobs"

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics(QueueObserver):
    """All of the operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._depth = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"], registry=self.registry).labels(
            QUEUE_NAME
        )
        self._adds = Counter("workqueue_adds", "Keys that were added.", ["name"], registry=self.registry).labels(
            QUEUE_NAME
        )
        self._retries = Counter(
            "workqueue_retries", "Keys that failed and were added again.", ["name"], registry=self.registry
        ).labels(QUEUE_NAME)
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds that keys wait for a worker.",
            ["name"],
            buckets=_SECONDS,
            registry=self.registry,
        ).labels(QUEUE_NAME)
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds that workers spend with a key.",
            ["name"],
            buckets=_SECONDS,
            registry=self.registry,
        ).labels(QUEUE_NAME)
        self._reconcile = Histogram(
            "dtj_reconcile_seconds",
            "Seconds of one pass over a job, by how it ended.",
            ["result"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._requests = Counter(
            "dtj_api_requests",
            "Calls to the API server, by verb, resource and HTTP status (0: no answer).",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "dtj_api_request_seconds",
            "Seconds of calls to the API server, watches aside.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def added(self, depth: int) -> None:
        self._adds.inc()
        self._depth.set(depth)

    def started(self, depth: int, *, waited: float) -> None:
        self._depth.set(depth)
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

    def watch_jobs(self, jobs: JobStore) -> None:
        """Report the number of jobs by state, counted when asked."""
        self.registry.register(_Collected(lambda: _jobs_by_state(jobs)))

    def watch_queue(self, queue: WorkQueue[Key]) -> None:
        """Report how long passes have been running, measured when asked."""
        self.registry.register(_Collected(lambda: _running_passes(queue)))


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def _jobs_by_state(jobs: JobStore) -> Iterable[Metric]:
    known = {str(state): 0 for state in State}
    tally = Tally(record.job.status.state or str(State.PENDING) for record in list(jobs))
    family = GaugeMetricFamily("dtj_jobs", "Jobs, by state.", labels=["state"])
    for state, number in (known | tally).items():
        family.add_metric([state], number)
    yield family


def _running_passes(queue: WorkQueue[Key]) -> Iterable[Metric]:
    for name, text, value in (
        ("workqueue_unfinished_work_seconds", "Seconds of running passes together.", queue.unfinished_work()),
        ("workqueue_longest_running_processor_seconds", "Seconds of the oldest pass.", queue.longest_running()),
    ):
        family = GaugeMetricFamily(name, text, labels=["name"])
        family.add_metric([QUEUE_NAME], value)
        yield family
