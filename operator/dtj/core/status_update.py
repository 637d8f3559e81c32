"""The one way to write the status of a job: what it should say now, and whether that can wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from dtj.api import kueue
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, RequeueAfter
from dtj.core.conditions import DesiredConditions, with_conditions
from dtj.core.context import JobContext
from dtj.core.progress import exported, progress
from dtj.core.replicas import Replica, worker_selector
from dtj.core.status import (
    differs_only_in_counts,
    differs_only_in_words,
    is_first_explanation,
    is_over,
    ready_text,
    replica_statuses,
)

COUNT_UPDATE_INTERVAL: Final = timedelta(seconds=10)
"""Least time between two status writes that change nothing but numbers of pods.

A start of many pods would else cost a write for each of them.
"""

WORDS_UPDATE_INTERVAL: Final = timedelta(seconds=60)
"""Least time between two status writes that change nothing but messages.

The scheduler's and the kubelet's words may change at every attempt, for as long as a pod cannot start.
"""


def counted(context: JobContext, *, starting: frozenset[Replica] = frozenset()) -> JobStatus:
    """The stored status with its pods counted again; ``starting`` are those that this pass creates."""
    before = context.job.status
    counts = replica_statuses(
        context.spec,
        context.current,
        done=context.completed,
        starting=starting,
        recorded=before.replica_statuses,
        stopping=[pod for pod in context.holding if pod.terminating or not context.is_current(pod)],
        spares=context.spares,
        # Kueue's own integration takes back the quota of a TFJob once none of its pods is active.
        active_is_running=context.job.form.kueue_integration and not context.job.labels.get(kueue.QUEUE),
    )
    return before.model_copy(
        update={
            "replica_statuses": counts,
            "ready": ready_text(counts),
            "selector": worker_selector(context.job),
            "progress": progress(context),
            "export": exported(context),
        }
    )


def obstructed(context: JobContext) -> Decision:
    """What goes before a question whose answer all else waits for: that a call keeps failing, which may be this one."""
    return write(context, counted(context), DesiredConditions()) if context.observed.obstacle else Decision()


def write(context: JobContext, base: JobStatus, desired: DesiredConditions) -> Decision:
    """Write ``base`` with these conditions if that differs from the stored status; mere counts wait for their turn."""
    before, status = context.job.status, with_conditions(context, base, desired)
    if status == before:
        return Decision()
    written = context.observed.status_written_at
    may_wait = differs_only_in_counts(before, status) and not is_first_explanation(before, status)
    if written is not None and may_wait:
        words = differs_only_in_words(before, status)
        interval = WORDS_UPDATE_INTERVAL if words else COUNT_UPDATE_INTERVAL
        if not is_over(written, interval, context.now):
            return Decision.of(RequeueAfter(context.seconds_until(written + interval)))
    return Decision.write(status)
