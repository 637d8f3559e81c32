"""When a restart may begin: a backoff after an error of the program, else at once, but never in a tight loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Condition
from dtj.api.status import JobStatus, PendingRestart, ReplicaStatus
from dtj.core.context import JobContext
from dtj.core.messages import cut
from dtj.core.observed import Phase, Pod
from dtj.core.outcome import CLOCKS_DIFFER
from dtj.core.pod_failure import PodEnd, PodFailureClass
from dtj.core.policies.budgets import errors
from dtj.core.replicas import Replica, format_indexes, parse_indexes
from dtj.core.status import format_deadline

CAUSE_PATIENCE: Final = timedelta(seconds=5)
"""For how long the cause is waited for, when all that is known is that a replica lost a peer."""

ATTEMPT_INTERVAL: Final = timedelta(seconds=10)
"""Least time between two attempts of which the first never had all its pods ready, and between two pods of a replica of
which the first never started.

A node that refuses every pod at once must not be asked without end.
"""

LONGEST_BACKOFF: Final = timedelta(seconds=60)
LONGEST_RECORDED: Final = LONGEST_BACKOFF + timedelta(seconds=1)
"""The same as it is recorded: in whole seconds, rounded up."""

GOOD_RUN: Final = timedelta(minutes=10)
"""A pod that ran so long was no quick failure: the backoff begins again."""


@dataclass(frozen=True, slots=True)
class NextPod:
    """The next pod of a replica that comes back alone: when it may be created."""

    due: datetime
    scheduled_before: bool = True
    """Whether the pod before it was scheduled. If not, this one takes its place, also in its gang."""


def replaced(status: JobStatus, following: Mapping[Replica, NextPod]) -> dict[str, ReplicaStatus]:
    """The counts by role with one more restart of each of these replicas alone."""
    found = dict(status.replica_statuses)
    for role in dict.fromkeys(replica.role for replica in following):
        counts = found.get(role, ReplicaStatus())
        of_role = {replica.index: pod for replica, pod in following.items() if replica.role is role}
        restarts = {str(index): counts.restarts.get(str(index), 0) + 1 for index in of_role}
        restarting = {str(index): format_deadline(pod.due) for index, pod in of_role.items()}
        alone = {index for index, pod in of_role.items() if pod.scheduled_before}
        update: dict[str, object] = {
            "restarts": {**counts.restarts, **restarts},
            "restarting": {**counts.restarting, **restarting},
        }
        if alone:
            update["replaced_indexes"] = format_indexes(parse_indexes(counts.replaced_indexes) | alone)
        found[str(role)] = counts.model_copy(update=update)
    return found


def due(status: JobStatus, ended: PodEnd, *, all_at_once: bool, now: datetime) -> datetime:
    """When the restart may begin: after a backoff where it was an error, else at once.

    It is asked when an end is first seen, and the answer recorded in the status: where no time of the end is known,
    or one that lies in the future (clocks differ), the wait counts from then.
    """
    if ended.by_infrastructure:
        when = cause_due(ended, now) if ended.failure_class is PodFailureClass.PEER_LOST else now
        return max(when, next_attempt(status, now) if all_at_once else _next_pod(ended.pod, now))
    ended_at = min(ended.at, now)
    end = ended.pod.termination
    began = (end.started_at if end is not None else None) or ended.pod.created_at
    lasted = ended_at - began if began is not None else timedelta()
    earlier = 0 if lasted >= GOOD_RUN else min(errors(status.restarts), 10)
    return ended_at + min(timedelta(seconds=2**earlier), LONGEST_BACKOFF)


def cause_due(ended: PodEnd, now: datetime) -> datetime:
    """Until when the cause is waited for where a replica lost a peer. This is asked again and again: a time that lies
    too far ahead says nothing."""
    at = at_most_later(ended.at, CLOCKS_DIFFER, now)
    return at + CAUSE_PATIENCE if at is not None else now


def at_most_later(moment: datetime | None, most: timedelta, now: datetime) -> datetime | None:
    """``moment``, or None where it lies further ahead than it can: the clock that it was taken from was wrong."""
    return None if moment is None or moment - now > most else moment


def _next_pod(pod: Pod, now: datetime) -> datetime:
    """When a replica may have another pod that nothing else delays."""
    started = pod.termination is not None or pod.phase is Phase.RUNNING
    return now if started or pod.created_at is None else min(pod.created_at, now) + ATTEMPT_INTERVAL


def next_attempt(status: JobStatus, now: datetime) -> datetime:
    """When a new attempt of all may begin that nothing else delays."""
    latest = at_most_later(parse_time(status.last_restart_time), CLOCKS_DIFFER, now)
    if latest is None or status.is_true(Condition.PODS_READY):
        return now
    return latest + ATTEMPT_INTERVAL


def pending(ended: PodEnd, why: str, due: datetime) -> PendingRestart:
    """The restart of all replicas that this end causes, as it is recorded before the wait for it."""
    restart = PendingRestart(not_before=format_deadline(due), message=cut(why), role=ended.pod.role, pod=ended.pod.name)
    return restart.model_copy(update={"kind": str(ended.failure_class)})


def pending_due(restart: PendingRestart, now: datetime) -> datetime:
    """When a restart that was recorded may begin."""
    return at_most_later(parse_time(restart.not_before), LONGEST_RECORDED, now) or now


def class_of(restart: PendingRestart) -> PodFailureClass:
    """The class of the end that was recorded."""
    return (
        PodFailureClass(restart.kind)
        if restart.kind in PodFailureClass.__members__.values()
        else PodFailureClass.USER_ERROR
    )


# -- replicas that come back alone -----------------------------------------------------------------------------


STUCK: Final = timedelta(seconds=30)
"""How long after its grace period a pod that does not go away is given up; its node is dead, most likely."""


def restart_due(context: JobContext, replica: Replica) -> datetime | None:
    """When the next pod of a replica that is replaced alone may be created, by what was recorded then."""
    counts = context.job.status.replica_statuses.get(replica.role)
    due = parse_time(counts.restarting.get(str(replica.index))) if counts is not None else None
    return at_most_later(due, LONGEST_RECORDED, context.now)


def seconds_until_due(context: JobContext, replica: Replica) -> float:
    """Seconds until the missing pod of a replica may be created."""
    due = restart_due(context, replica)
    backoff = (due - context.now).total_seconds() if due is not None else 0.0
    return max(seconds_until_predecessor_gone(context, replica), backoff)


def predecessors(context: JobContext, replica: Replica) -> list[Pod]:
    """The pods of this attempt that still run, of a replica that comes back alone."""
    if replica not in context.replaced_alone:
        return []
    before = (pod for pod in context.pods_of(replica) if not pod.all_containers_ended)
    return [pod for pod in before if pod.attempt >= context.attempt and not context.is_current(pod)]


def seconds_until_predecessor_gone(context: JobContext, replica: Replica) -> float:
    """Seconds for which a replica that comes back alone waits for its predecessor: two must not share an address.

    One that hangs on a dead node is given up some time after its grace period. That is counted from when the
    replica was replaced, by the operator's own clock: the API server's may be another by hours.
    """
    since, waits = restart_due(context, replica), [0.0]
    for pod in predecessors(context, replica):
        if pod.deletion_due is None:
            waits.append(STUCK.total_seconds())
        elif since is not None and pod.deletion_requested_at is not None:
            given_up = since + (pod.deletion_due - pod.deletion_requested_at)
            waits.append((given_up - context.now).total_seconds() + STUCK.total_seconds())
        else:
            waits.append((pod.deletion_due - context.now).total_seconds() + STUCK.total_seconds())
    return max(waits)
