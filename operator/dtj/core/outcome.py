"""How a job ends: success by its policy, or the first failure.

In this version nothing is restarted: the first replica that fails, fails the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from dtj.api.spec import JobSpec, as_role
from dtj.api.status import RootCause
from dtj.core.observed import Phase, Pod
from dtj.core.replicas import Replica, deciding_replicas

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Success:
    """The replicas that decide have completed."""

    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica failed before the job could succeed."""

    cause: RootCause
    message: str


def replica_of(pod: Pod) -> Replica | None:
    """The replica that a pod runs, or None where its role is none of ours."""
    role = as_role(pod.role)
    return Replica(role, pod.index) if role is not None else None


def completed(pods: Iterable[Pod], recorded: Iterable[Replica]) -> frozenset[Replica]:
    """Replicas that have completed: recorded ones stay so even when their pods are gone."""
    now_done = (replica_of(pod) for pod in pods if pod.phase is Phase.SUCCEEDED)
    return frozenset(recorded) | {replica for replica in now_done if replica is not None}


def decide(spec: JobSpec, pods: tuple[Pod, ...], done: frozenset[Replica]) -> Success | Failure | None:
    """The end that the pods show, or None while there is none.

    Where both a success and a failure are seen, the earlier one counts: what happens to the peers of a chief
    that has completed is no failure of the job.
    """
    failed = sorted((pod for pod in pods if pod.phase is Phase.FAILED), key=_ended_at)
    deciding = deciding_replicas(spec)
    if deciding and deciding <= done:
        decided_at = max(
            (_ended_at(pod) for pod in pods if pod.phase is Phase.SUCCEEDED and replica_of(pod) in deciding),
            default=None,
        )
        if not failed or decided_at is None or decided_at <= _ended_at(failed[0]):
            return Success(_success_message(deciding, failed))
    return _failure(failed[0]) if failed else None


def _ended_at(pod: Pod) -> datetime:
    ended = pod.termination.finished_at if pod.termination is not None else None
    return ended or _LATEST


def _success_message(deciding: frozenset[Replica], failed: list[Pod]) -> str:
    who = (
        next(iter(deciding)).hostname + " completed"
        if len(deciding) == 1
        else f"all {len(deciding)} training replicas completed"
    )
    after = f"; {', '.join(pod.name for pod in failed)} failed after that" if failed else ""
    return who + after


def _failure(pod: Pod) -> Failure:
    end = pod.termination
    cause = RootCause(
        role=pod.role,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        exit_code=end.exit_code if end is not None else None,
        signal=_signal(pod),
        reason=(end.reason if end is not None else "") or pod.reason,
        message=(end.message if end is not None else "") or pod.message,
    )
    return Failure(cause=cause, message=_failure_message(cause))


def _signal(pod: Pod) -> int | None:
    """The signal that ended the container: as the runtime says, or as 128 + signal in the exit code."""
    end = pod.termination
    if end is None:
        return None
    if end.signal:
        return end.signal
    return end.exit_code - 128 if 128 < end.exit_code < 160 else None


def _failure_message(cause: RootCause) -> str:
    how = f"exited with code {cause.exit_code}" if cause.exit_code is not None else "failed"
    why = f" ({cause.reason})" if cause.reason else ""
    last_line = cause.message.strip().rpartition("\n")[2]
    return f"{cause.role}-{cause.index} (pod {cause.pod}) {how}{why}" + (f": {last_line}" if last_line else "")
