"""What the ends of its pods mean for a job: success by its policy, or the loss of a replica.

The first end is the cause; what happens to its peers after it is a consequence. What becomes of a loss is decided
by :mod:`dtj.core.recovery`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Reason
from dtj.api.spec import CLUSTER_ROLES, COLLECTIVE, SINGLE_PROCESS, JobSpec, RestartScope, Role, Strategy, as_role
from dtj.api.status import RootCause
from dtj.core.hints import hint
from dtj.core.messages import MAX_LOG_TAIL, cut, first_few
from dtj.core.observed import Pod
from dtj.core.pod_failure import PodFailureClass, TerminatedPod, by_its_own_fault, terminated_pods
from dtj.core.replicas import TRAINING_ROLES, Replica, deciding_replicas

CLOCKS_DIFFER: Final = timedelta(seconds=5)
"""By how much the clocks of two nodes differ that are in order, and more."""


@dataclass(frozen=True, slots=True)
class Success:
    """The replicas that decide have completed."""

    message: str
    reason: Reason = Reason.TRAINING_SUCCEEDED


@dataclass(frozen=True, slots=True)
class Failure:
    """The job cannot succeed any more: why, and which pod's end it was, if it was one's."""

    reason: Reason
    message: str
    cause: RootCause | None = None


@dataclass(frozen=True, slots=True)
class PodLosses:
    """Replicas have ended, or are being taken away, before their work was done; the first of them is the cause."""

    ends: tuple[TerminatedPod, ...]

    @property
    def first(self) -> TerminatedPod:
        """The cause."""
        return self.ends[0]

    @property
    def message(self) -> str:
        """Who, and what became of it."""
        pod = self.first.pod
        if not self.first.by_infrastructure:
            return how_it_failed(root_cause(self.first))
        how = {
            PodFailureClass.PREEMPTION: "was told to go and saved its work",
            PodFailureClass.PEER_LOST: "lost a peer",
        }.get(self.first.failure_class, "was taken away")
        words = ", ".join(filter(None, (pod.reason, f"on node {pod.node}" if pod.node else "")))
        return f"{pod.role}-{pod.index} (pod {pod.name}) {how}" + (f" ({words})" if words else "")


def replica_of(pod: Pod) -> Replica | None:
    """The replica that a pod runs, or None where its role is none of ours."""
    role = as_role(pod.role)
    return Replica(role, pod.index) if role is not None else None


def completed(pods: Iterable[Pod], recorded: Iterable[Replica]) -> frozenset[Replica]:
    """Replicas that have completed: recorded ones stay so even when their pods are gone."""
    now_done = (
        replica_of(ended.pod) for ended in terminated_pods(pods) if ended.failure_class is PodFailureClass.COMPLETED
    )
    return frozenset(recorded) | {replica for replica in now_done if replica is not None}


def decide(spec: JobSpec, pods: tuple[Pod, ...], done: frozenset[Replica]) -> Success | PodLosses | None:
    """What the pods of one attempt show, or None where they just go on.

    Where several are seen, the earliest counts: what happens to the peers of a chief that has completed is no
    failure of the job, and no more is the error of a worker whose peer was evicted a moment before. Nodes stamp these
    ends by their own clocks: a completion that follows an error by seconds may have been its cause, and wins.
    """
    ends = terminated_pods(pods)
    losses = [e for e in ends if e.failure_class is not PodFailureClass.COMPLETED and replica_of(e.pod) not in done]
    losses = in_order(spec, losses)
    deciding = deciding_replicas(spec)
    if deciding and deciding <= done:
        decided_at = max(
            (e.at for e in ends if e.failure_class is PodFailureClass.COMPLETED and replica_of(e.pod) in deciding),
            default=None,
        )
        errors = [e for e in ends if not e.by_infrastructure and e.failure_class is not PodFailureClass.COMPLETED]
        if not errors or decided_at is None or decided_at - CLOCKS_DIFFER <= errors[0].at:
            return Success(_success_message(deciding, [e for e in ends if e.pod.failed]))
    return PodLosses(tuple(losses)) if losses else None


def in_order(spec: JobSpec, losses: Iterable[TerminatedPod]) -> list[TerminatedPod]:
    """The cause first. A loss that concerns all comes before one that concerns a replica alone; a lost peer is a cause
    only where there is no other."""
    return sorted(
        losses, key=lambda e: (e.failure_class is PodFailureClass.PEER_LOST, not requires_full_restart(spec, e), e.at)
    )


def requires_full_restart(spec: JobSpec, ended: TerminatedPod) -> bool:
    """Whether this loss ends the work of all: then all start again, from the checkpoint.

    Collectives break when one member is lost. In a ParameterServer job workers and chief come back alone, to servers
    that live on; the variables go with a server, and a chief that lost a peer says that the servers cannot go on. Who
    trains in one process has no peers, no more has an evaluator; and who trains waits for a data service that comes
    back. ``runPolicy.restartScope`` may say otherwise.
    """
    scope = spec.run_policy.restart_scope
    if scope is not RestartScope.AUTO:
        return scope is RestartScope.JOB
    role = ended.pod.role
    if role not in CLUSTER_ROLES or spec.strategy in SINGLE_PROCESS:
        return False
    if spec.strategy is not Strategy.PARAMETER_SERVER or role not in (Role.CHIEF, Role.WORKER):
        return True
    return role == Role.CHIEF and ended.failure_class is PodFailureClass.PEER_LOST


def is_secondary_failure(ended: TerminatedPod, loss: PodLosses, replaced: Iterable[datetime]) -> bool:
    """Whether a replica that lost a peer did so because of another that is charged, or was.

    It is where another replica is lost for a reason of its own; or where one was replaced alone while the pod that
    ended ran (``replaced`` are the times at which the pods of those came, or are to come), and that pod lives or is
    yet to come: where all lose each other, the cause is yet to be charged.
    """
    if ended.failure_class is not PodFailureClass.PEER_LOST:
        return False
    if loss.first.failure_class is not PodFailureClass.PEER_LOST:
        return True
    end, pod = ended.pod.termination, ended.pod
    began = (end.started_at if end is not None else None) or pod.created_at
    return began is not None and any(moment > began for moment in replaced)


def blocked_by_completed_peers(spec: JobSpec, done: frozenset[Replica]) -> bool:
    """Whether a replica that came back alone would wait in vain for members of its collective that have completed."""
    training = {replica for replica in done if replica.role in TRAINING_ROLES}
    return bool(training) and spec.strategy in COLLECTIVE


def requires_predecessor_gone(spec: JobSpec, replica: Replica) -> bool:
    """Whether a replica may come back alone only once its predecessor has ended for certain.

    A coordinator on a dead node may still command the servers, and save.
    """
    auto = spec.run_policy.restart_scope is RestartScope.AUTO
    return auto and spec.strategy is Strategy.PARAMETER_SERVER and replica.role is Role.CHIEF


def _success_message(deciding: frozenset[Replica], failed: list[TerminatedPod]) -> str:
    who = (
        next(iter(deciding)).hostname + " completed"
        if len(deciding) == 1
        else f"all {len(deciding)} training replicas completed"
    )
    after = f"; {first_few(ended.pod.name for ended in failed)} failed after that" if failed else ""
    return who + after


def root_cause(ended: TerminatedPod) -> RootCause:
    """What is known of the end of a pod."""
    pod = ended.pod
    end = pod.termination
    words, reason = (end.message, end.reason) if end is not None else ("", "")
    if by_its_own_fault(pod):
        words, reason = pod.message, pod.reason
    words, reason = (words or pod.message).strip(), reason or pod.reason
    if end is not None and end.init_container:
        words = f"init container {end.init_container}: {words or 'failed'}"
    words = words[-MAX_LOG_TAIL:]
    exit_code = end.exit_code if end is not None else None
    cause = RootCause(
        role=pod.role,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        exit_code=exit_code,
        signal=_signal(pod),
        reason=reason,
        message=cut(words.rpartition("\n")[2]),
        log_tail=words,
        hint=hint(message=words, reason=reason, exit_code=exit_code),
    )
    return cause.model_copy(update={"kind": str(ended.failure_class)})


def _signal(pod: Pod) -> int | None:
    """The signal that ended the container: as the runtime says, or as 128 + signal in the exit code."""
    end = pod.termination
    if end is None:
        return None
    if end.signal:
        return end.signal
    return end.exit_code - 128 if 128 < end.exit_code < 160 else None


def how_it_failed(cause: RootCause) -> str:
    """A failure in one line: who, how, and its last words."""
    how = f"exited with code {cause.exit_code}" if cause.exit_code is not None else "failed"
    why = f" ({cause.reason})" if cause.reason else ""
    last_words = f": {cause.message}" if cause.message else ""
    return f"{cause.role}-{cause.index} (pod {cause.pod}) {how}{why}{last_words}"
