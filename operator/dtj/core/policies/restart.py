"""What becomes of a job that lost a replica: the replica comes back alone, all start again, or the job has failed.

Counters are in the status, and are written before any pod is touched: an operator that is killed in between neither
forgets a restart nor counts one twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dtj.api.json import whole_number
from dtj.api.names import Reason
from dtj.api.spec import COLLECTIVE, MAX_REPLICAS
from dtj.api.status import JobStatus
from dtj.core import node_losses
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions, pods_ready, with_conditions
from dtj.core.context import JobContext
from dtj.core.observed import Phase, Pod
from dtj.core.outcome import Failure, PodLosses, root_cause
from dtj.core.pod_failure import EARLIEST, PodEnd, PodFailureClass
from dtj.core.pod_state import replica_of
from dtj.core.policies import budgets, elastic_members, restart_wait
from dtj.core.policies.attempt import begin_attempt
from dtj.core.policies.finish import finish
from dtj.core.policies.free_restarts import FreeRestarts
from dtj.core.policies.restart_scope import (
    in_order,
    is_secondary_failure,
    requires_full_restart,
    requires_predecessor_gone,
)
from dtj.core.policies.success_policy import decide
from dtj.core.replicas import TRAINING_ROLES, Replica, replicas, training_replicas
from dtj.core.status import format_deadline
from dtj.core.status_update import counted, write

MAX_EVENTS: Final = 10
"""Replicas of one pass that get an event each when they start again alone; one event more tells how many others do. All
jobs share a few events a second."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What an end means to a replica that comes back alone: whether a budget pays for it, and when its next pod is
    due."""

    ended: PodEnd
    replica: Replica
    due: datetime
    charged: bool


def restart_as_recorded(context: JobContext) -> Decision | None:
    """Go on with a recorded restart whose cause has been deleted: a failure is not forgotten if its pod is removed."""
    restart = context.job.status.pending_restart
    if restart is None or any(ended.pod.name == restart.pod for ended in _losses(context)):
        return None
    due, status = restart_wait.pending_due(restart, context.now), context.job.status
    if context.now < due:
        return _wait(context, restart.message, due, status)
    charged = _charged(FreeRestarts(context), status, restart_wait.class_of(restart), restart.role)
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
    return _restart_alone(context, losses)


def awaited_until(context: JobContext) -> datetime | None:
    """Until when the cause of a loss may show itself: who pays, and whether anybody can, is not known before."""
    # Few jobs have such an end: which ends are losses is not asked of the others.
    if not any(_cause_may_show(context, ended) for ended in context.pod_ends):
        return None
    waited_for = [ended for ended in _losses(context) if _cause_may_show(context, ended)]
    return min((restart_wait.cause_due(ended, context.now) for ended in waited_for), default=None)


def restart_if_predecessor_hangs(context: JobContext) -> Decision | None:
    """All start again if a replica cannot come back alone, since the one before has not ended for certain."""
    for replica in context.missing:
        may_go_on = any(not pod.main_container_ended for pod in restart_wait.predecessors(context, replica))
        given_up = restart_wait.seconds_until_predecessor_gone(context, replica) <= 0
        if requires_predecessor_gone(context.spec, replica) and given_up and may_go_on:
            why = f"{replica.hostname} hangs, and may still command the others"
            return begin_attempt(context, "Warning", why, context.job.status)
    return None


def _cause_may_show(context: JobContext, ended: PodEnd) -> bool:
    """Whether who pays, and whether anybody can, is not known yet: a replica lost a peer a moment ago."""
    return ended.failure_class is PodFailureClass.PEER_LOST and context.now < restart_wait.cause_due(ended, context.now)


def _denied(context: JobContext, status: JobStatus, ended: PodEnd) -> Failure | None:
    return budgets.restart_denied(context.spec, status, ended, context.job.form.exit_codes_of_errors)


def _charged(free: FreeRestarts, status: JobStatus, failure_class: PodFailureClass, role: str) -> JobStatus:
    """``status`` with a restart more, and with what the next one is judged by."""
    return free.recorded(budgets.charge(status, failure_class, role), failure_class)


def _losses(context: JobContext) -> tuple[PodEnd, ...]:
    spec = elastic_members.spec_for_restarts(context)
    outcome = decide(spec, context.pod_ends, context.completed, context.members, may_fail=context.may_fail)
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
    if _cause_may_show(context, first):
        unknown = status.model_copy(update={"pending_restart": None})
        return _wait(context, losses.message, restart_wait.cause_due(first, now), unknown)
    free = FreeRestarts(context)
    first = free.judged(first)
    losses = PodLosses((first, *losses.ends[1:]))
    denied = _denied(context, status, first)
    if denied is not None:
        return finish(context, denied)
    noted = status.model_copy(update={"root_cause": budgets.known_cause(status, first)})
    if restart is not None and restart.pod == first.pod.name:
        due = restart_wait.pending_due(restart, now)
    else:
        due = restart_wait.due(status, first, all_at_once=True, now=now)
        noted = node_losses.of_ends(noted, losses.ends, now)
        noted = noted.model_copy(update={"pending_restart": restart_wait.pending(first, losses.message, due)})
    if now < due:
        return _wait(context, losses.message, due, noted)
    charged = _charged(free, noted, first.failure_class, first.pod.role)
    return begin_attempt(context, "Warning", losses.message, charged)


def _wait(context: JobContext, why: str, due: datetime, noted: JobStatus) -> Decision:
    """Wait for the next attempt: record what is seen, and what ``noted`` says about who will pay."""
    update: dict[str, object] = {"pending_restart": noted.pending_restart, "root_cause": noted.root_cause}
    update["node_losses"] = noted.node_losses
    status = counted(context).model_copy(update=update)
    message = f"{why}; the next attempt begins at {format_deadline(due)}"
    restarting = DesiredCondition("True", Reason.BACKOFF, message)
    desired = DesiredConditions(pods_ready=pods_ready(context, status), restarting=restarting)
    return write(context, status, desired).then(RequeueAfter(context.seconds_until(due)))


def _restart_alone(context: JobContext, losses: PodLosses) -> Decision | None:
    """Replicas come back alone, each when its time has come; the others go on meanwhile.

    An end is charged when it is seen; its backoff is recorded with it, and holds the next pod back.
    """
    judged = _judged(context, losses)
    if isinstance(judged, Failure):
        return finish(context, judged)
    status, verdicts = judged
    if not verdicts:
        return None
    following = {
        verdict.replica: restart_wait.NextPod(verdict.due, _was_scheduled(context, verdict.ended.pod))
        for verdict in verdicts
    }
    status = node_losses.of_ends(status, (verdict.ended for verdict in verdicts), context.now)
    # What was to restart all, before the launcher said that replicas can come back alone, is paid by this.
    update: dict[str, object] = {
        "replica_statuses": restart_wait.replaced(status, following),
        "pending_restart": None,
    }
    errors = [each.ended for each in verdicts if each.charged and not each.ended.by_infrastructure]
    if errors:
        update["root_cause"] = root_cause(errors[-1])
    events = _restart_events(context, verdicts)
    waiting = DesiredCondition("False", Reason.WAITING_FOR_PODS, events[-1].message)
    world = elastic_members.following(context, following) if elastic_members.in_place(context) else None
    if world is not None:
        update["world"] = world.recorded()
        events.append(elastic_members.announcement(context, world))
    recorded = with_conditions(context, status.model_copy(update=update), DesiredConditions(pods_ready=waiting))
    return Decision.write(recorded).then(*events, RequeueAfter(0.0))


def _judged(context: JobContext, losses: PodLosses) -> Failure | tuple[JobStatus, list[_Verdict]]:
    """The status in which these restarts are charged, and a verdict on each replica that comes back alone; or why the
    job has failed.

    Without a verdict are those that lost a peer, as long as the cause may show, and a TFJob's dynamic workers that may
    not start again: the others go on without, if there are any.
    """
    free, latest = FreeRestarts(context), max(_restart_times(context), default=None)
    status, verdicts = context.job.status, list[_Verdict]()
    peer_charged, given_up = False, None
    for lost in losses.ends:
        replica = replica_of(lost.pod)
        if replica is None or _cause_may_show(context, lost):
            continue
        ended = free.judged(lost)
        spare = replica in context.spares
        concerns_nobody = spare or _was_given_back(context, lost.pod)
        follows = concerns_nobody or peer_charged or is_secondary_failure(ended, losses, latest)
        denied = None if follows else _denied(context, status, ended)
        if denied is not None and replica.role in context.may_fail:
            given_up = given_up or denied
            continue
        if denied is not None:
            return denied
        due = max(context.now, restart_wait.due(status, ended, all_at_once=False, now=context.now))
        if spare and not ended.by_infrastructure:
            # No error of a spare is counted, so that no limit ends its restarts.
            due = context.now + restart_wait.LONGEST_BACKOFF
        verdicts.append(_Verdict(ended, replica, due, charged=not follows))
        # A lost peer is charged once, however many lost it.
        peer_charged = peer_charged or (not concerns_nobody and lost.failure_class is PodFailureClass.PEER_LOST)
        if not follows:
            status = _charged(free, status, ended.failure_class, ended.pod.role)
    if given_up is not None and not verdicts and not _some_train(context):
        return given_up
    return status, verdicts


def _was_given_back(context: JobContext, pod: Pod) -> bool:
    """Whether a pod was deleted because the job wanted fewer workers, which it wants again before the pod is gone."""
    return replica_of(pod) in context.outsiders and pod.terminating and not pod.disrupted


def _some_train(context: JobContext) -> bool:
    """Whether a replica that computes gradients has not ended, or is about to start."""
    pods = map(context.pod_of, training_replicas(context.spec))
    return any(pod is None or not pod.main_container_ended for pod in pods)


def _was_scheduled(context: JobContext, lost: Pod) -> bool:
    """Whether a lost pod had been placed. If it is gone without a trace, only the other pods can tell."""
    return bool(lost.node) or lost.phase is not Phase.PENDING or context.any_pod_scheduled


def _restart_events(context: JobContext, verdicts: list[_Verdict]) -> list[Emit]:
    """An event for each of the first replicas that start again alone, and one for all the others."""
    messages = []
    for verdict in verdicts[:MAX_EVENTS]:
        when = f" at {format_deadline(verdict.due)}" if verdict.due > context.now else ""
        messages.append(f"{PodLosses((verdict.ended,)).message}; it starts again alone{when}")
    if more := len(verdicts) - len(messages):
        messages.append(f"{more:,} more replicas were lost, and each starts again alone")
    return [Emit("Warning", Reason.REPLICA_RESTARTED, message) for message in messages]


def _restart_times(context: JobContext) -> Iterator[datetime]:
    """When the replicas that were replaced alone came back, or will."""
    for replica in replicas(context.spec):
        if replica not in context.replaced_alone:
            continue
        pod = context.pod_of(replica)
        moment = restart_wait.restart_due(context, replica) if pod is None else pod.created_at
        if moment is not None and (pod is None or not pod.main_container_ended):
            yield moment
