"""What becomes of a job that lost a replica: a restart, which some budget pays, or the end.

Counters are in the status, and are written before any pod is touched: an operator that is killed in between neither
forgets a restart nor counts one twice.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import ExitCodes, JobSpec, ReplicaSpec, RestartPolicy
from dtj.api.status import JobStatus, PendingRestart, ReplicaStatus, RestartCounts, RootCause
from dtj.core.messages import cut
from dtj.core.observed import Phase, Pod
from dtj.core.outcome import CLOCKS_DIFFER, Failure, how_it_failed, root_cause
from dtj.core.pod_failure import PodFailureClass, TerminatedPod
from dtj.core.replicas import Replica, format_indexes, parse_indexes
from dtj.core.status import format_deadline

NON_RETRYABLE_EXIT_CODES: Final = frozenset({1, 2, 126, 127, 128, 134, 139})
"""Exit codes that no restart can help: an error of the program or its arguments, no such command, abort, segfault."""

CAUSE_PATIENCE: Final = timedelta(seconds=5)
"""For how long the cause is waited for, when all that is known is that a replica lost a peer."""

ATTEMPT_INTERVAL: Final = timedelta(seconds=10)
"""Least time between two attempts of which the first never had all its pods ready, and between two pods of a replica of
which the first never started.

A node that refuses every pod at once must not be asked without end.
"""

LONGEST_BACKOFF: Final = timedelta(seconds=60)
GOOD_RUN: Final = timedelta(minutes=10)
"""A pod that ran so long was no quick failure: the backoff begins anew."""


def restart_denied(spec: JobSpec, status: JobStatus, ended: TerminatedPod) -> Failure | None:
    """Why there can be no restart after this end, or None where there can be one."""
    cause = root_cause(ended)
    what = how_it_failed(cause)
    if ended.by_infrastructure:
        limit = spec.run_policy.disruption_limit
        if ended.failure_class is PodFailureClass.PREEMPTION or limit is None or status.restarts.disruption < limit:
            return None
        caused = "1 restart" if limit == 1 else f"{limit} restarts"
        message = f"{what}; the infrastructure has caused {caused}, which is runPolicy.disruptionLimit"
        return Failure(Reason.DISRUPTION_LIMIT_EXCEEDED, message, cause)
    role = spec.replica_specs.get(ended.pod.role) or ReplicaSpec()
    codes = spec.run_policy.exit_codes or ExitCodes()
    end = ended.pod.termination
    code = end.exit_code if end is not None and not end.init_container else None
    hopeless = (
        role.restart_policy is RestartPolicy.EXIT_CODE
        and code in NON_RETRYABLE_EXIT_CODES
        and code not in codes.retryable
    )
    if ended.failure_class is not PodFailureClass.OUT_OF_MEMORY and (hopeless or code in codes.fatal):
        return Failure(Reason.FATAL_EXIT_CODE, f"{what}; no restart can help after this exit code", cause)
    if role.restart_policy is RestartPolicy.NEVER:
        return Failure(Reason.REPLICA_FAILED, what, cause)
    spent = used_up(spec, status)
    return Failure(Reason.BACKOFF_LIMIT_EXCEEDED, what + spent, cause) if spent is not None else None


def used_up(spec: JobSpec, status: JobStatus) -> str | None:
    """What to add to the message of an error for which ``backoffLimit`` leaves no restart; None where it leaves one."""
    limit = spec.run_policy.backoff_limit
    if errors(status.restarts) < limit:
        return None
    spent = "1 restart is" if limit == 1 else f"{limit} restarts are"
    return f"; {spent} used up, which is runPolicy.backoffLimit" if limit else ""


def errors(counts: RestartCounts) -> int:
    """The restarts that ``backoffLimit`` counts."""
    return counts.user + counts.out_of_memory


def charged(counts: RestartCounts, failure_class: PodFailureClass) -> RestartCounts:
    """``counts`` with one restart more, paid by the class of the end that caused it."""
    field = {
        PodFailureClass.USER_ERROR: "user",
        PodFailureClass.OUT_OF_MEMORY: "out_of_memory",
        PodFailureClass.PREEMPTION: "preemption",
    }.get(failure_class, "disruption")
    return counts.model_copy(update={field: getattr(counts, field) + 1, "total": counts.total + 1})


def replaced(status: JobStatus, replica: Replica, due: datetime, *, had_started: bool) -> dict[str, ReplicaStatus]:
    """The counts by role with one more restart of this replica alone, whose pod may be created when that is due.

    One whose pod had not even been scheduled (``had_started`` is False) takes the place of that pod, also in its gang.
    """
    counts = status.replica_statuses.get(replica.role, ReplicaStatus())
    index = str(replica.index)
    update: dict[str, object] = {
        "restarts": {**counts.restarts, index: counts.restarts.get(index, 0) + 1},
        "restarting": {**counts.restarting, index: format_deadline(due)},
    }
    if had_started:
        alone = parse_indexes(counts.replaced_indexes) | {replica.index}
        update["replaced_indexes"] = format_indexes(alone)
    return {**status.replica_statuses, str(replica.role): counts.model_copy(update=update)}


def out_of_memory(status: JobStatus, role: str) -> dict[str, ReplicaStatus]:
    """The counts by role where one more pod of this role was killed for want of memory.

    ``runPolicy.onOutOfMemory`` says what that means for the pods to come.
    """
    counts = status.replica_statuses.get(role, ReplicaStatus())
    counted = counts.model_copy(update={"memory_increases": counts.memory_increases + 1})
    return {**status.replica_statuses, role: counted}


def due(status: JobStatus, ended: TerminatedPod, *, all_at_once: bool, now: datetime) -> datetime:
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


def cause_due(ended: TerminatedPod, now: datetime) -> datetime:
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


def pending(ended: TerminatedPod, why: str, due: datetime) -> PendingRestart:
    """The restart of all that this end will have been the cause of, to be recorded before it is waited for."""
    restart = PendingRestart(not_before=format_deadline(due), message=cut(why), role=ended.pod.role, pod=ended.pod.name)
    return restart.model_copy(update={"kind": str(ended.failure_class)})


def pending_due(restart: PendingRestart, now: datetime) -> datetime:
    """When a restart that was recorded may begin."""
    return at_most_later(parse_time(restart.not_before), LONGEST_BACKOFF, now) or now


def class_of(restart: PendingRestart) -> PodFailureClass:
    """The class of the end that was recorded."""
    return (
        PodFailureClass(restart.kind)
        if restart.kind in PodFailureClass.__members__.values()
        else PodFailureClass.USER_ERROR
    )


def known_cause(status: JobStatus, ended: TerminatedPod) -> RootCause | None:
    """``rootCause`` where this end is what all start again for.

    What the infrastructure did is no cause of the job's own; nor is the error of a peer any more, for which the
    restart was to be before it was seen.
    """
    if not ended.by_infrastructure:
        return root_cause(ended)
    before, restart = status.root_cause, status.pending_restart
    return None if before is not None and restart is not None and before.pod == restart.pod else before


def charge(status: JobStatus, failure_class: PodFailureClass, role: str) -> JobStatus:
    """``status`` with a restart more, for an end of this class of a replica of this role."""
    update: dict[str, object] = {"restarts": charged(status.restarts, failure_class)}
    if failure_class is PodFailureClass.OUT_OF_MEMORY:
        update["replica_statuses"] = out_of_memory(status, role)
    return status.model_copy(update=update)
