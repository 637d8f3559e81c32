"""Kueue's labels on a job: its users know them from other kinds of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dtj.api.spec import Gang, JobSpec, Scheduling

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
MAX_EXECUTION_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"

_MAX_INT32: Final = 2_147_483_647


def with_queue(spec: JobSpec, labels: Mapping[str, str]) -> JobSpec:
    """``spec`` with the queue that the label names, if it names none itself and no other scheduler."""
    return in_queue(spec, labels.get(QUEUE, ""))


def in_queue(spec: JobSpec, queue: str) -> JobSpec:
    """``spec`` with this LocalQueue of Kueue, if the name is not empty and :func:`leaves_queue_open`."""
    if not queue or not leaves_queue_open(spec):
        return spec
    scheduling = spec.run_policy.scheduling or Scheduling()
    queued = scheduling.model_copy(update={"gang": Gang.KUEUE, "queue": queue})
    return spec.model_copy(update={"run_policy": spec.run_policy.model_copy(update={"scheduling": queued})})


def leaves_queue_open(spec: JobSpec) -> bool:
    """Whether a job names no queue, and no scheduler but Kueue."""
    scheduling = spec.run_policy.scheduling or Scheduling()
    return scheduling.queue is None and scheduling.gang in (Gang.AUTO, Gang.KUEUE)


def priority_class(labels: Mapping[str, str]) -> str:
    """The WorkloadPriorityClass with whose priority the job is queued; empty if it names none."""
    return labels.get(PRIORITY_CLASS, "")


def max_execution_seconds(labels: Mapping[str, str]) -> int | None:
    """How long Kueue lets the job run in all; None without a valid label."""
    given = labels.get(MAX_EXECUTION_SECONDS, "")
    return int(given) if given.isascii() and given.isdigit() and 0 < int(given) <= _MAX_INT32 else None


def problems(spec: JobSpec, labels: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the labels; ``spec`` is the one of :func:`with_queue`."""
    queue, scheduling = labels.get(QUEUE), spec.run_policy.scheduling or Scheduling()
    if queue and scheduling.queue != queue:
        other = f"queue {scheduling.queue}" if scheduling.queue is not None else f"gang {scheduling.gang}"
        yield (
            f"metadata.labels: {QUEUE} names the queue {queue}, but runPolicy.scheduling names {other}: remove one of "
            "the two"
        )
    if MAX_EXECUTION_SECONDS in labels and max_execution_seconds(labels) is None:
        yield (
            f"metadata.labels: {MAX_EXECUTION_SECONDS} must be a number of seconds from 1 to {_MAX_INT32:,}, not "
            f"{labels[MAX_EXECUTION_SECONDS]!r}"
        )
