"""What a status write shows of a job's history, for the metrics. Each write is looked at once, after it succeeded."""

from __future__ import annotations

from datetime import datetime

from dtj.api.job import Job
from dtj.api.names import Condition, Reason, State
from dtj.api.status import JobStatus
from dtj.core.policies import deadlines
from dtj.engine.job_cache import JobCache
from dtj.engine.metrics import RESTART_CLASSES, Metrics


def note(metrics: Metrics, job: Job, after: JobStatus, *, cache: JobCache, now: datetime) -> None:
    """``after`` was written in place of ``job``'s status."""
    before = job.status
    _note_start(metrics, job, after, now=now)
    _note_restarts(metrics, before, after, cache=cache, now=now)
    if after.terminal and not before.terminal:
        succeeded = after.is_true(Condition.COMPLETE)
        kind = after.root_cause.kind if after.root_cause is not None and not succeeded else ""
        metrics.finished_job(State.SUCCEEDED if succeeded else State.FAILED, kind)


def _note_start(metrics: Metrics, job: Job, after: JobStatus, *, now: datetime) -> None:
    begun = deadlines.begun(job, after)
    if begun is None:
        return
    if after.start_time is not None and job.status.start_time is None:
        metrics.launched("FirstPod", (now - begun).total_seconds())
    if after.ready_time is not None and job.status.ready_time is None:
        metrics.launched("AllReady", (now - begun).total_seconds())


def _note_restarts(metrics: Metrics, before: JobStatus, after: JobStatus, *, cache: JobCache, now: datetime) -> None:
    earlier, later = (status.restarts.model_dump(by_alias=True) for status in (before, after))
    more = {kind: later[kind] - earlier[kind] for kind in RESTART_CLASSES}
    for kind, number in more.items():
        if number > 0:
            metrics.restarted(kind, number)
    restarting = after.condition(Condition.RESTARTING)
    waits = restarting is not None and restarting.status == "True" and restarting.reason == Reason.BACKOFF
    if cache.lost_at is None and (waits or any(number > 0 for number in more.values())):
        cache.lost_at = now
    if after.is_true(Condition.PODS_READY) and cache.lost_at is not None:
        metrics.recovered((now - cache.lost_at).total_seconds())
    if after.start_time is None or after.terminal or after.is_true(Condition.PODS_READY):
        cache.lost_at = None
