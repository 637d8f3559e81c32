"""What becomes of a job that lost a replica: the replica comes back alone, all start again, or the job has failed.

Counters are in the status, and are written before any pod is touched: an operator that is killed in between neither
forgets a restart nor counts one twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from dtj.api.json import whole_number
from dtj.api.names import Reason
from dtj.api.spec import COLLECTIVE, MAX_REPLICAS, Role
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions, pods_ready, with_conditions
from dtj.core.context import JobContext
from dtj.core.observed import Pod
from dtj.core.outcome import Failure, PodLosses, root_cause
from dtj.core.pod_failure import EARLIEST, PodEnd, PodFailureClass
from dtj.core.pod_state import replica_of
from dtj.core.policies import budgets, elastic_members, pods, restart_wait
from dtj.core.policies.attempt import begin_attempt
from dtj.core.policies.finish import finish
from dtj.core.policies.free_restarts import Evidence
from dtj.core.policies.name_collision import report_collision
from dtj.core.policies.restart_scope import (
    in_order,
    is_secondary_failure,
    requires_full_restart,
    requires_predecessor_gone,
)
from dtj.core.policies.success_policy import decide
from dtj.core.replicas import TRAINING_ROLES, Replica, replicas
from dtj.core.status import format_deadline
from dtj.core.status_update import counted, write

MAX_EVENTS: Final = 10
"""Replicas of one pass that get an event each when they start again alone; one event more tells how many others do. All
jobs share a few events a second."""


def restart_as_recorded(context: JobContext) -> Decision | None:
    """Go on with a recorded restart whose cause has been deleted: a failure is not forgotten if its pod is removed."""
    restart = context.job.status.pending_restart
    if restart is None or any(ended.pod.name == restart.pod for ended in _losses(context)):
        return None
    due, status = restart_wait.pending_due(restart, context.now), context.job.status
    if context.now < due:
        return _wait(context, restart.message, due, status)
    charged = _charged(Evidence(context), status, restart_wait.class_of(restart), restart.role)
    return begin_attempt(context, "Warning", restart.message, charged)


def recover(context: JobContext) -> Decision | None:
    """Bring lost replicas back alone if the others can go on meanwhile; else all start again from the checkpoint."""
    spec = elastic_members.spec_for_restarts(context)
    lost = in_order(spec, (*_losses(context), *_vanished(context)))
    if not lost:
        return None
    losses = PodLosses(tuple(lost))
    of_work = [ended for ended in lost if replica_of(ended.pod) not in context.spares]
    if any(requires_full_restart(spec, ended) or _waits_in_vain(context, ended) for ended in of_work):
        return _restart_all(context, losses)
    return _replace(context, losses)


def restart_if_predecessor_hangs(context: JobContext) -> Decision | None:
    """All start again if a replica cannot come back alone, since the one before has not ended for certain."""
    for replica in context.missing:
        may_go_on = any(not pod.main_container_ended for pod in restart_wait.predecessors(context, replica))
        given_up = restart_wait.seconds_until_predecessor_gone(context, replica) <= 0
        if requires_predecessor_gone(context.spec, replica) and given_up and may_go_on:
            why = f"{replica.hostname} hangs, and may still command the others"
            return begin_attempt(context, "Warning", why, context.job.status)
    return None


def _denied(context: JobContext, status: JobStatus, ended: PodEnd) -> Failure | None:
    return budgets.restart_denied(context.spec, status, ended, context.job.form.exit_codes_of_errors)


def _charged(evidence: Evidence, status: JobStatus, failure_class: PodFailureClass, role: str) -> JobStatus:
    """``status`` with a restart more, and with what the next one is judged by."""
    return evidence.recorded(budgets.charge(status, failure_class, role), failure_class)


def _losses(context: JobContext) -> tuple[PodEnd, ...]:
    spec = elastic_members.spec_for_restarts(context)
    outcome = decide(spec, context.pod_ends, context.completed, context.members)
    return outcome.ends if isinstance(outcome, PodLosses) else ()


def _vanished(context: JobContext) -> tuple[PodEnd, ...]:
    """Replicas whose pods were there, as the status says, and are gone without a trace.

    All pods of this attempt were ready once; of a replica that was replaced alone since then, its next pod was ready
    too. Whether they are ready now says nothing: a node that dies first makes its pods unready. They are the cause of
    what ended at the same time: a pod that was asked to end would have left a trace.
    """
    if not context.was_ready:
        return ()
    known = context.job.status.replica_statuses
    awaited = {
        Replica(role, index)
        for role in context.spec.roles()
        if role in known
        for index in (whole_number(text, most=MAX_REPLICAS) for text in known[role].restarting)
        if index is not None
    }
    known_to_be_absent = awaited | context.outsiders
    lost = (
        replica
        for replica in context.missing
        if replica not in known_to_be_absent
        and (context.members or replica.role not in known or replica.index < known[replica.role].desired)
    )
    return tuple(PodEnd(_gone(context, each), PodFailureClass.DISRUPTION, EARLIEST) for each in lost)


def _gone(context: JobContext, replica: Replica) -> Pod:
    """What is known of a pod that nobody shows any more."""
    job = context.job
    return Pod(
        namespace=job.namespace,
        name=context.name_of(replica),
        uid="",
        owner_uid=job.uid,
        job_name=job.name,
        role=replica.role,
        index=replica.index,
    )


def _waits_in_vain(context: JobContext, ended: PodEnd) -> bool:
    """Whether a replica that came back alone would wait for peers of its collective that have completed."""
    peers_completed = context.completed_peer is not None and context.spec.strategy in COLLECTIVE
    return peers_completed and ended.pod.role in TRAINING_ROLES


def _restart_all(context: JobContext, losses: PodLosses) -> Decision:
    """All start again, or the job has failed. The first end is the one that is charged: the others follow from it."""
    status, now = context.job.status, context.now
    first, restart = losses.first, status.pending_restart
    if first.failure_class is PodFailureClass.PEER_LOST and now < (due := restart_wait.cause_due(first, now)):
        # Who pays, and whether anybody can, is not known yet.
        return _wait(context, losses.message, due, status.model_copy(update={"pending_restart": None}))
    evidence = Evidence(context)
    first = evidence.judged(first)
    losses = PodLosses((first, *losses.ends[1:]))
    denied = _denied(context, status, first)
    if denied is not None:
        return finish(context, denied)
    noted = status.model_copy(update={"root_cause": budgets.known_cause(status, first)})
    if restart is not None and restart.pod == first.pod.name:
        due = restart_wait.pending_due(restart, now)
    else:
        due = restart_wait.due(status, first, all_at_once=True, now=now)
        noted = noted.model_copy(update={"pending_restart": restart_wait.pending(first, losses.message, due)})
    if now < due:
        return _wait(context, losses.message, due, noted)
    charged = _charged(evidence, noted, first.failure_class, first.pod.role)
    return begin_attempt(context, "Warning", losses.message, charged)


def _wait(context: JobContext, why: str, due: datetime, noted: JobStatus) -> Decision:
    """Wait for the next attempt: record what is seen, and what ``noted`` says about who will pay."""
    update = {"pending_restart": noted.pending_restart, "root_cause": noted.root_cause}
    status = counted(context).model_copy(update=update)
    message = f"{why}; the next attempt begins at {format_deadline(due)}"
    restarting = DesiredCondition("True", Reason.BACKOFF, message)
    desired = DesiredConditions(pods_ready=pods_ready(context, status), restarting=restarting)
    return write(context, status, desired).then(RequeueAfter(context.seconds_until(due)))


def _replace(context: JobContext, losses: PodLosses) -> Decision:
    """Replicas come back alone, each when its time has come; the others go on meanwhile.

    An end is charged when it is seen; its backoff is recorded with it, and holds the next pod back.
    """
    status, now = context.job.status, context.now
    evidence, following = Evidence(context), dict[Replica, restart_wait.NextPod]()
    latest = max(_restart_times(context), default=None)
    blamed: PodEnd | None = None
    peer_paid = False  # a lost peer is charged once, however many lost it
    waits: list[float] = []
    events: list[Emit] = []
    for ended in losses.ends:
        replica = replica_of(ended.pod)
        if replica is None:
            continue
        peer_lost = ended.failure_class is PodFailureClass.PEER_LOST
        if peer_lost and now < (known := restart_wait.cause_due(ended, now)):
            waits.append(context.seconds_until(known))
            continue
        ended = evidence.judged(ended)
        follows = peer_paid or is_secondary_failure(ended, losses, latest)
        denied = None if follows else _denied(context, status, ended)
        if denied is not None and context.job.form.dynamic_workers and replica.role is Role.WORKER:
            continue
        if denied is not None:
            return finish(context, denied)
        due = max(now, restart_wait.due(status, ended, all_at_once=False, now=now))
        peer_paid = peer_paid or peer_lost
        if not follows:
            status = _charged(evidence, status, ended.failure_class, ended.pod.role)
            blamed = blamed if ended.by_infrastructure else ended
        following[replica] = restart_wait.NextPod(due, scheduled_before=context.was_scheduled(ended.pod))
        if len(following) <= MAX_EVENTS:
            when = f" at {format_deadline(due)}" if due > now else ""
            message = f"{PodLosses((ended,)).message}; it starts again alone{when}"
            events.append(Emit("Warning", Reason.REPLICA_RESTARTED, message))
    if not events:
        # Only what follows waits for the cause: names that are taken still come first.
        return (report_collision(context) or pods.run(context)).then(*((RequeueAfter(min(waits)),) if waits else ()))
    if more := len(following) - len(events):
        message = f"{more:,} more replicas were lost, and each starts again alone"
        events.append(Emit("Warning", Reason.REPLICA_RESTARTED, message))
    update: dict[str, object] = {"replica_statuses": restart_wait.replaced(status, following)}
    if blamed is not None:
        update["root_cause"] = root_cause(blamed)
    status = status.model_copy(update=update)
    waiting = DesiredCondition("False", Reason.WAITING_FOR_PODS, events[-1].message)
    world = elastic_members.following(context, following) if elastic_members.in_place(context) else None
    if world is not None:
        status = status.model_copy(update={"world": world.recorded()})
        events.append(elastic_members.announcement(context, world))
    recorded = with_conditions(context, status, DesiredConditions(pods_ready=waiting))
    return Decision.write(recorded).then(*events, RequeueAfter(0.0))


def _restart_times(context: JobContext) -> Iterator[datetime]:
    """When the replicas that were replaced alone came back, or will."""
    for replica in replicas(context.spec):
        if not context.replaced_alone(replica):
            continue
        pod = context.pod_of(replica)
        moment = restart_wait.restart_due(context, replica) if pod is None else pod.created_at
        if moment is not None and (pod is None or not pod.main_container_ended):
            yield moment
