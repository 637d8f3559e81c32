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
from dtj.api.status import JobStatus, ReplicaStatus, RestartCounts
from dtj.core.endings import LATEST, Ended, Ending
from dtj.core.observed import Phase, Pod
from dtj.core.outcome import Failure, how_it_failed, root_cause
from dtj.core.replicas import Replica

HOPELESS: Final = frozenset({1, 2, 126, 127, 128, 134, 139})
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


def refusal(spec: JobSpec, status: JobStatus, ended: Ended) -> Failure | None:
    """Why there can be no restart after this end, or None where there can be one."""
    cause = root_cause(ended)
    what = how_it_failed(cause)
    if ended.by_infrastructure:
        limit = spec.run_policy.disruption_limit
        if ended.ending is Ending.PREEMPTION or limit is None or status.restarts.disruption < limit:
            return None
        caused = "1 restart" if limit == 1 else f"{limit} restarts"
        message = f"{what}; the infrastructure has caused {caused}, which is runPolicy.disruptionLimit"
        return Failure(Reason.DISRUPTION_LIMIT_EXCEEDED, message, cause)
    role = spec.replica_specs.get(ended.pod.role) or ReplicaSpec()
    codes = spec.run_policy.exit_codes or ExitCodes()
    code = cause.exit_code
    hopeless = role.restart_policy is RestartPolicy.EXIT_CODE and code in HOPELESS and code not in codes.retryable
    if ended.ending is not Ending.OUT_OF_MEMORY and (hopeless or code in codes.fatal):
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


def charged(counts: RestartCounts, ending: Ending) -> RestartCounts:
    """``counts`` with one restart more, paid by the class of the end that caused it."""
    field = {
        Ending.USER_ERROR: "user",
        Ending.OUT_OF_MEMORY: "out_of_memory",
        Ending.PREEMPTION: "preemption",
    }.get(ending, "disruption")
    return counts.model_copy(update={field: getattr(counts, field) + 1, "total": counts.total + 1})


def replaced(status: JobStatus, replica: Replica) -> dict[str, ReplicaStatus]:
    """The counts by role with one restart of this replica alone more."""
    counts = status.replica_statuses.get(replica.role, ReplicaStatus())
    index = str(replica.index)
    restarts = {**counts.restarts, index: counts.restarts.get(index, 0) + 1}
    return {**status.replica_statuses, str(replica.role): counts.model_copy(update={"restarts": restarts})}


def out_of_memory(status: JobStatus, role: str) -> dict[str, ReplicaStatus]:
    """The counts by role where one more pod of this role was killed for want of memory.

    ``runPolicy.onOutOfMemory`` says what that means for the pods to come.
    """
    counts = status.replica_statuses.get(role, ReplicaStatus())
    counted = counts.model_copy(update={"memory_increases": counts.memory_increases + 1})
    return {**status.replica_statuses, role: counted}


def due(status: JobStatus, ended: Ended, *, all_at_once: bool, now: datetime) -> datetime:
    """When the restart may begin: after a backoff where it was an error, else at once.

    A time of the end that is unknown or lies in the future (clocks differ) delays nothing for ever.
    """
    ended_at = ended.at if ended.at <= now else now
    if ended.by_infrastructure:
        when = ended_at + CAUSE_PATIENCE if ended.ending is Ending.PEER_LOST and ended.at != LATEST else now
        return max(when, next_attempt(status, now) if all_at_once else _next_pod(ended.pod, now))
    end = ended.pod.termination
    began = (end.started_at if end is not None else None) or ended.pod.created_at
    lasted = ended_at - began if began is not None else timedelta()
    earlier = 0 if lasted >= GOOD_RUN else min(errors(status.restarts), 10)
    backoff = min(timedelta(seconds=2**earlier), LONGEST_BACKOFF)
    return ended_at + backoff if ended.at != LATEST else now


def _next_pod(pod: Pod, now: datetime) -> datetime:
    """When a replica may have another pod that nothing else delays."""
    started = pod.termination is not None or pod.phase is Phase.RUNNING
    return now if started or pod.created_at is None else pod.created_at + ATTEMPT_INTERVAL


def next_attempt(status: JobStatus, now: datetime) -> datetime:
    """When a new attempt of all may begin that nothing else delays."""
    latest = parse_time(status.last_restart_time)
    if latest is None or status.is_true(Condition.PODS_READY):
        return now
    return latest + ATTEMPT_INTERVAL
