"""Who restarts when a replica is lost: the replica alone, or all replicas from the last checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dtj.api.spec import CLUSTER_ROLES, SINGLE_PROCESS, JobSpec, RestartScope, Role, Strategy
from dtj.core.outcome import PodLosses
from dtj.core.pod_failure import PodEnd, PodFailureClass
from dtj.core.replicas import Replica


def requires_full_restart(spec: JobSpec, ended: PodEnd) -> bool:
    """Whether this loss ends the work of all: then all start again, from the checkpoint.

    Collectives break when one member is lost. In a ParameterServer job workers and chief come back alone, to servers
    that live on; the variables go with a server, and a chief that lost a peer reports that the servers cannot go on. A
    training in one process has no peers, nor has an evaluator, and replicas that train wait for a data service that
    comes back. ``runPolicy.restartScope`` may say otherwise. tests/unit/core/test_restart_scope.py has the table.
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


def in_order(spec: JobSpec, losses: Iterable[PodEnd]) -> list[PodEnd]:
    """The cause first.

    A loss that concerns all replicas comes before one that concerns a replica alone. A lost peer is a cause only if
    there is no other.
    """
    return sorted(
        losses, key=lambda e: (e.failure_class is PodFailureClass.PEER_LOST, not requires_full_restart(spec, e), e.at)
    )


def is_secondary_failure(ended: PodEnd, loss: PodLosses, latest: datetime | None) -> bool:
    """Whether a replica that lost a peer did so because of another that is charged, or was.

    It is one if another replica is lost for a reason of its own. It is one as well if another was replaced alone while
    the pod that ended ran, and that pod lives or is yet to come; ``latest`` is when the latest of those pods came, or
    will come. If all replicas lose each other, the cause is yet to be charged.
    """
    if ended.failure_class is not PodFailureClass.PEER_LOST:
        return False
    if loss.first.failure_class is not PodFailureClass.PEER_LOST:
        return True
    end, pod = ended.pod.termination, ended.pod
    began = (end.started_at if end is not None else None) or pod.created_at
    return began is not None and latest is not None and latest > began


def requires_predecessor_gone(spec: JobSpec, replica: Replica) -> bool:
    """Whether a replica may come back alone only once its predecessor has ended for certain.

    A coordinator on a dead node may still command the servers, and save.
    """
    auto = spec.run_policy.restart_scope is RestartScope.AUTO
    return auto and spec.strategy is Strategy.PARAMETER_SERVER and replica.role is Role.CHIEF
