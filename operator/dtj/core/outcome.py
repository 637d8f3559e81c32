"""What the ends of its pods mean for a job: success by its policy, a failure, or an interruption.

The first end is the cause; what happens to its peers after it is a consequence. In this version a failure of the
job's own is not retried: the first replica that fails, fails the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dtj.api.spec import JobSpec, Role, Strategy, as_role
from dtj.api.status import RootCause
from dtj.core.endings import Ended, Ending, endings
from dtj.core.observed import Phase, Pod
from dtj.core.replicas import Replica, deciding_replicas


@dataclass(frozen=True, slots=True)
class Success:
    """The replicas that decide have completed."""

    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica failed before the job could succeed."""

    cause: RootCause
    message: str


@dataclass(frozen=True, slots=True)
class Interruption:
    """The infrastructure took a replica away."""

    first: Ended

    @property
    def message(self) -> str:
        """Who, and what became of it."""
        pod = self.first.pod
        how = {
            Ending.PREEMPTION: "was told to go and saved its work",
            Ending.PEER_LOST: "lost a peer",
        }.get(self.first.ending, "was taken away")
        words = ", ".join(filter(None, (pod.reason, f"on node {pod.node}" if pod.node else "")))
        return f"{pod.role}-{pod.index} (pod {pod.name}) {how}" + (f" ({words})" if words else "")


def replica_of(pod: Pod) -> Replica | None:
    """The replica that a pod runs, or None where its role is none of ours."""
    role = as_role(pod.role)
    return Replica(role, pod.index) if role is not None else None


def completed(pods: Iterable[Pod], recorded: Iterable[Replica]) -> frozenset[Replica]:
    """Replicas that have completed: recorded ones stay so even when their pods are gone."""
    now_done = (replica_of(ended.pod) for ended in endings(pods) if ended.ending is Ending.COMPLETED)
    return frozenset(recorded) | {replica for replica in now_done if replica is not None}


def decide(spec: JobSpec, pods: tuple[Pod, ...], done: frozenset[Replica]) -> Success | Failure | Interruption | None:
    """What the pods of one attempt show, or None where they just go on.

    Where several are seen, the earliest counts: what happens to the peers of a chief that has completed is no
    failure of the job, and no more is the error of a worker whose peer was evicted a moment before.
    """
    ends = endings(pods)
    failed = [ended for ended in ends if ended.ending is Ending.ERROR]
    deciding = deciding_replicas(spec)
    if deciding and deciding <= done:
        decided_at = max(
            (e.at for e in ends if e.ending is Ending.COMPLETED and replica_of(e.pod) in deciding), default=None
        )
        if not failed or decided_at is None or decided_at <= failed[0].at:
            later = [ended for ended in ends if ended.pod.phase is Phase.FAILED]
            return Success(_success_message(deciding, later))
    interrupted = [e for e in ends if e.by_infrastructure and replica_of(e.pod) not in done]
    # A lost peer is a consequence: it is a cause only where there is no other.
    interrupted.sort(key=lambda e: (e.ending is Ending.PEER_LOST, not concerns_all(spec, e.pod), e.at))
    if interrupted and (
        not failed or (interrupted[0].ending is not Ending.PEER_LOST and interrupted[0].at <= failed[0].at)
    ):
        return Interruption(interrupted[0])
    return _failure(failed[0].pod) if failed else None


def concerns_all(spec: JobSpec, pod: Pod) -> bool:
    """Whether the loss of this pod ends the work of all: then all start again, from the checkpoint.

    Collectives break when one member is lost. A worker of a ParameterServer job comes back alone, to servers that
    hold the variables; an evaluator has no peers.
    """
    if pod.role == Role.EVALUATOR:
        return False
    return spec.strategy is not Strategy.PARAMETER_SERVER or pod.role != Role.WORKER


def _success_message(deciding: frozenset[Replica], failed: list[Ended]) -> str:
    who = (
        next(iter(deciding)).hostname + " completed"
        if len(deciding) == 1
        else f"all {len(deciding)} training replicas completed"
    )
    after = f"; {', '.join(ended.pod.name for ended in failed)} failed after that" if failed else ""
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
