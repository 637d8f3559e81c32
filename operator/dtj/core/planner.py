"""The planner: from what is observed of a job to what is to be done about it.

Pure and level-triggered. It remembers nothing: whatever must survive is in the job's status, and is recorded
there before anything depends on it. A job whose world does not change gets an empty plan, or one that only says when
its next deadline is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from dtj.api import names
from dtj.api.json import dig
from dtj.api.names import Condition, Reason
from dtj.api.spec import OnStall, Role
from dtj.api.status import JobStatus, PendingRestart
from dtj.core import deadlines, network_policy, record, recovery, stall, tensorboard
from dtj.core.actions import (
    AskForStacks,
    DeleteJob,
    Emit,
    LookForGangs,
    PatchStatus,
    Plan,
    RequeueAfter,
)
from dtj.core.holding import Holding
from dtj.core.leftovers import seconds_until_given_up
from dtj.core.messages import first_few
from dtj.core.observed import Observed, Pod
from dtj.core.outcome import (
    Failure,
    PodLosses,
    Success,
    blocked_by_completed_peers,
    decide,
    in_order,
    is_secondary_failure,
    replica_of,
    requires_full_restart,
    requires_predecessor_gone,
    root_cause,
)
from dtj.core.pod_failure import EARLIEST, PodFailureClass, TerminatedPod
from dtj.core.replicas import TRAINING_ROLES, Replica, replicas
from dtj.core.status import (
    DesiredCondition,
    DesiredConditions,
    format_deadline,
    format_time,
    of_a_new_attempt,
    ready_text,
    without_a_guess,
)
from dtj.core.validity import Problem, problems
from dtj.core.view import View, writes

MAX_STACKS: Final = 64
"""Pods of a job that are asked for their stacks: the first ones."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about ``observed.job`` at ``now`` (an aware datetime); ordered, empty where nothing is.

    Never raises for anything that an API server can store.
    """
    job = observed.job
    if job.deleting or not job.uid or dig(job.raw_spec, "runPolicy", "managedBy") not in (None, names.CONTROLLER):
        return ()
    view = View.of(observed, now)
    over = job.status.terminal
    names_gone = _names_gone(view) if over else ()
    if job.spec is None:
        return (*view.stop_pods(), *names_gone) if over else view.report_invalid(problems(job, observed.platform))
    valid = _Valid(view=view, spec=job.spec)
    wanted = view.stop_pods() or _removal(view) if over else valid.plan(problems(job, observed.platform))
    if DeleteJob() in wanted:
        return wanted
    # The Service comes last: what becomes of TensorBoard does not wait for one that cannot be deleted.
    beside = (*tensorboard.beside(valid, wanted), *network_policy.after_the_end(valid))
    return (*wanted, *valid.stacks(wanted), *beside, *names_gone)


def _where(pod: Pod) -> str:
    return f"{pod.name} on node {pod.node}" if pod.node else pod.name


def _names_gone(view: View) -> Plan:
    """The Service goes with the end of the job, whatever its clean-up policy: a cluster holds some thousands."""
    return () if view.to_stop() else view.drop_service()


def _removal(view: View) -> Plan:
    due = deadlines.removal(view.job, view.job.spec) if view.job.spec is not None else None
    if due is None:
        return ()
    wait = (due - view.now).total_seconds()
    return (RequeueAfter(wait),) if wait > 0 else (DeleteJob(),)


@dataclass(frozen=True, slots=True)
class _Valid(Holding):
    """Planning of a job whose manifest can be read."""

    def plan(self, found: tuple[Problem, ...]) -> Plan:
        newer = record.newer_pods(self.view.own, self.job)
        if newer:
            return self._wait_for_the_record(newer)
        if self.must_look_for_gangs():
            return (LookForGangs(),)
        recorded = self._recorded_outcome()
        if recorded is not None:
            return self._finish(recorded)
        done = self.done()
        outcome = decide(self.spec, self.current(), done)
        if isinstance(outcome, Success):
            return self._finish(outcome)
        if self.spec.run_policy.suspend and (self.begun or not found):
            return self.suspend()
        found = (*found, *self.gang_problems())
        late = self._late(done, found)
        if late is not None:
            return self._finish(late)
        return (*self._go_on(outcome, done, found), *self._deadlines())

    def stacks(self, plan: Plan) -> Plan:
        """What a job that stands still does is asked of its pods once, in the pass that records the stall."""
        known = self.job.status.terminal or self.job.status.is_true(Condition.STALLED)
        if known or stall.evidence(self) is None or not writes(plan):
            return ()
        reached = [pod for pod in self.current() if pod.role in TRAINING_ROLES and pod.ip and not pod.ended]
        return (AskForStacks(tuple(reached[:MAX_STACKS])),) if reached else ()

    def _go_on(self, loss: PodLosses | None, done: frozenset[Replica], found: tuple[Problem, ...]) -> Plan:
        if found:
            return (*self.view.report_invalid(found), *self.look_again())
        for held in (self.queue(), self.release()):
            if held is not None:
                return held  # empty where nothing is to be done but to wait
        resized = self._resized(done)
        if resized is not None:
            return self._resize(resized)
        seen = loss.ends if loss is not None else ()
        recorded = self._recorded_restart(seen)
        if recorded is not None:
            return self._restart_as_recorded(recorded, done)
        lost = in_order(self.spec, (*seen, *self._vanished(done)))
        if lost:
            return self._recover(PodLosses(tuple(lost)), done)
        stalled = stall.evidence(self)
        if stalled is not None and self.spec.run_policy.on_stall is OnStall.RESTART:
            return self._end_stall(stalled)
        hanging = self._hanging(done)
        if hanging is not None:
            why = f"{hanging.hostname} hangs, and may still command the others"
            return self._begin_attempt("Warning", why, self.job.status)
        collision = self.collision()
        return collision if collision is not None else self.run(done)

    def _recorded_outcome(self) -> Success | Failure | None:
        """How the job will end, where that was decided in an earlier pass."""
        status = self.job.status
        met, target = status.condition(Condition.SUCCESS_CRITERIA_MET), status.condition(Condition.FAILURE_TARGET)
        if met is not None and met.status == "True":
            return Success(met.message)
        if target is not None and target.status == "True":
            known = target.reason in Reason.__members__.values()
            reason = Reason(target.reason) if known else Reason.REPLICA_FAILED
            return Failure(reason, target.message, status.root_cause)
        return None

    # -- time limits -----------------------------------------------------------------------------------------

    def _late(self, done: frozenset[Replica], found: tuple[Problem, ...]) -> Failure | None:
        """The deadline that has passed, if one has."""
        now, policy = self.view.now, self.spec.run_policy
        active = deadlines.active(self.job, self.spec)
        if active is not None and now >= active:
            message = (
                f"the job has run for {policy.active_deadline_seconds} s, which is runPolicy.activeDeadlineSeconds"
            )
            return Failure(Reason.DEADLINE_EXCEEDED, message)
        stalled = stall.evidence(self)
        if stalled is not None and policy.on_stall is OnStall.FAIL:
            return Failure(Reason.STALLED, stalled)
        start = deadlines.start(self.job, self.spec)
        if start is None or now < start:
            return None
        readiness = self.readiness(done, self.status(starting=frozenset()))
        if readiness.status == "True" and not found:
            return None
        why = "; ".join(problem.message for problem in found) or self._told() or readiness.message
        limit = f"within {policy.start_deadline_seconds} s, which is runPolicy.startDeadlineSeconds"
        return Failure(Reason.START_DEADLINE_EXCEEDED, f"not all pods were ready {limit}: {why}")

    def _told(self) -> str:
        """What the status says that keeps the job from starting and is no pod of its own."""
        invalid = self.job.status.condition(Condition.INVALID)
        ready = self.job.status.condition(Condition.PODS_READY)
        if invalid is not None and invalid.status == "True":
            return invalid.message
        return ready.message if ready is not None and ready.reason == Reason.NAME_TAKEN else ""

    def _deadlines(self) -> tuple[RequeueAfter, ...]:
        """When to look again, though nothing happens until then."""
        due = (deadlines.active(self.job, self.spec), deadlines.start(self.job, self.spec))
        return tuple(RequeueAfter(self.seconds_until(moment)) for moment in due if moment is not None)

    # -- recovering ------------------------------------------------------------------------------------------

    def _vanished(self, done: frozenset[Replica]) -> tuple[TerminatedPod, ...]:
        """Replicas whose pods were there, as the status says, and are gone without a trace.

        All pods of this attempt were ready once; of a replica that was replaced alone since then, that is said of its
        next pod too. Whether they are ready now says nothing: a node that dies first makes its pods unready. They are
        the cause of what ended beside them: who was told to end would have left a trace.
        """
        if not self.was_ready:
            return ()
        known = self.job.status.replica_statuses
        awaited = {
            Replica(role, int(i))
            for role in self.spec.roles()
            if role in known
            for i in known[role].restarting
            if i.isdecimal()
        }
        return tuple(
            TerminatedPod(
                Pod(
                    namespace=self.job.namespace,
                    name=self.name_of(replica),
                    uid="",
                    owner_uid=self.job.uid,
                    job_name=self.job.name,
                    role=replica.role,
                    index=replica.index,
                ),
                PodFailureClass.DISRUPTION,
                EARLIEST,
            )
            for replica in self.missing(done)
            if replica not in awaited
        )

    def _recover(self, loss: PodLosses, done: frozenset[Replica]) -> Plan:
        """A replica was lost: it comes back alone, or all start again from the checkpoint, or the job has failed.

        Where all must start again, the first end is the one that is charged: the others are its consequences.
        """
        status, now = self.job.status, self.view.now
        alone = not any(requires_full_restart(self.spec, ended) for ended in loss.ends)
        if alone and not any(self._waits_in_vain(ended, done) for ended in loss.ends):
            return self._replace(loss, done)
        first, restart = loss.first, status.pending_restart
        if first.failure_class is PodFailureClass.PEER_LOST and now < (due := recovery.cause_due(first, now)):
            # Who pays, and whether anybody can, is not known yet.
            return self._waiting(done, loss.message, due, status.model_copy(update={"pending_restart": None}))
        refused = recovery.restart_denied(self.spec, status, first)
        if refused is not None:
            return self._finish(refused)
        noted = status.model_copy(update={"root_cause": recovery.known_cause(status, first)})
        if restart is not None and restart.pod == first.pod.name:
            due = recovery.pending_due(restart, now)
        else:
            due = recovery.due(status, first, all_at_once=True, now=now)
            noted = noted.model_copy(update={"pending_restart": recovery.pending(first, loss.message, due)})
        if now < due:
            return self._waiting(done, loss.message, due, noted)
        return self._begin_attempt("Warning", loss.message, recovery.charge(noted, first.failure_class, first.pod.role))

    def _recorded_restart(self, seen: tuple[TerminatedPod, ...]) -> PendingRestart | None:
        """The restart that waits for its time, where the pod that is its cause has been deleted meanwhile."""
        restart = self.job.status.pending_restart
        there = restart is not None and any(ended.pod.name == restart.pod for ended in seen)
        return None if there else restart

    def _restart_as_recorded(self, restart: PendingRestart, done: frozenset[Replica]) -> Plan:
        """Somebody tidied the failed pod away: its failure is not forgotten by that."""
        due, status = recovery.pending_due(restart, self.view.now), self.job.status
        if self.view.now < due:
            return self._waiting(done, restart.message, due, status)
        charged = recovery.charge(status, recovery.class_of(restart), restart.role)
        return self._begin_attempt("Warning", restart.message, charged)

    def _waits_in_vain(self, ended: TerminatedPod, done: frozenset[Replica]) -> bool:
        """Whether a replica that is to come back alone would meet nobody."""
        return ended.pod.role in TRAINING_ROLES and blocked_by_completed_peers(self.spec, done)

    def _hanging(self, done: frozenset[Replica]) -> Replica | None:
        """A replica that cannot come back alone, since the one before has not ended for certain."""
        for replica in self.missing(done):
            may_go_on = any(not pod.ended for pod in self.predecessors(replica))
            if (
                requires_predecessor_gone(self.spec, replica)
                and self.seconds_until_predecessor_gone(replica) <= 0
                and may_go_on
            ):
                return replica
        return None

    def _end_stall(self, why: str) -> Plan:
        """All start again, as after an error of their own: a job that always stands still must end."""
        status = self.job.status
        spent = recovery.used_up(self.spec, status)
        if spent is not None:
            return self._finish(Failure(Reason.STALLED, why + spent))
        counts = recovery.charged(status.restarts, PodFailureClass.USER_ERROR)
        return self._begin_attempt("Warning", why, status.model_copy(update={"restarts": counts}))

    def _resized(self, done: frozenset[Replica]) -> str | None:
        """How the number of workers differs from the one that this attempt was started with, if it does.

        As long as nothing of the attempt is there, it simply starts with the new number.
        """
        recorded = self.job.status.replica_statuses.get(Role.WORKER)
        wanted = self.spec.replicas(Role.WORKER)
        started = self.job.status.start_time is not None and bool(self.current() or done)
        if self.spec.elastic is None or recorded is None or recorded.desired == wanted or not started:
            return None
        return f"workers scaled from {recorded.desired} to {wanted}"

    def _resize(self, how: str) -> Plan:
        """All start again with the same list of workers; until then the recorded number is left as it is."""
        status = self.job.status
        wait = self.seconds_until(recovery.next_attempt(status, self.view.now))
        return (RequeueAfter(wait),) if wait > 0 else self._begin_attempt("Normal", how, status)

    def _waiting(self, done: frozenset[Replica], why: str, due: datetime, noted: JobStatus) -> Plan:
        """Until a new attempt may begin, only what is seen is recorded, and what is ``noted`` of who will pay."""
        update = {"pending_restart": noted.pending_restart, "root_cause": noted.root_cause}
        status = self.status(starting=frozenset()).model_copy(update=update)
        restarting = DesiredCondition(
            "True", Reason.BACKOFF, f"{why}; the next attempt begins at {format_deadline(due)}"
        )
        desired = DesiredConditions(pods_ready=self.readiness(done, status), restarting=restarting)
        changed = self.view.patch(self.view.with_conditions(status, desired))
        return (*changed, RequeueAfter(self.seconds_until(due)))

    def _begin_attempt(self, kind: Literal["Normal", "Warning"], why: str, charged: JobStatus) -> Plan:
        """Recorded before any pod is touched; the next pass finds pods of an older attempt, and replaces them.

        ``charged`` is the status in which this restart is paid for already, where anything pays for it.
        """
        number = max(charged.attempt, 1) + 1
        message = f"attempt {number}: {why}; all replicas start again from the last checkpoint"
        status = charged.model_copy(
            update={
                "attempt": number,
                "last_restart_time": format_time(self.view.now),
                "pending_restart": None,
                "replica_statuses": of_a_new_attempt(self.spec, charged.replica_statuses),
                "ready": ready_text(self.spec, {}),
            }
        )
        starting = DesiredCondition("False", Reason.NEW_ATTEMPT, message)
        desired = DesiredConditions(pods_ready=starting, restarting=replace(starting, status="True"))
        return (
            PatchStatus(self.view.with_conditions(status, desired)),
            Emit(kind, Reason.NEW_ATTEMPT, message),
            RequeueAfter(0.0),  # nothing else may happen that would start the next pass
        )

    def _replace(self, loss: PodLosses, done: frozenset[Replica]) -> Plan:
        """Replicas that come back alone, each when its time has come; the others go on meanwhile.

        An end is charged when it is seen; its backoff is recorded with it, and holds the next pod back.
        """
        status, now = self.job.status, self.view.now
        replaced = tuple(self._restart_times())
        peer_paid = False  # a lost peer is charged once, however many lost it
        waits: list[float] = []
        said: list[Emit] = []
        for ended in loss.ends:
            replica = replica_of(ended.pod)
            if replica is None:
                continue
            if ended.failure_class is PodFailureClass.PEER_LOST and now < (known := recovery.cause_due(ended, now)):
                waits.append(self.seconds_until(known))
                continue
            follows = peer_paid or is_secondary_failure(ended, loss, replaced)
            refused = None if follows else recovery.restart_denied(self.spec, status, ended)
            if refused is not None:
                return self._finish(refused)
            due = max(now, recovery.due(status, ended, all_at_once=False, now=now))
            peer_paid = peer_paid or ended.failure_class is PodFailureClass.PEER_LOST
            if not follows:
                status = recovery.charge(status, ended.failure_class, ended.pod.role)
                cause = status.root_cause if ended.by_infrastructure else root_cause(ended)
                status = status.model_copy(update={"root_cause": cause})
            counts = recovery.replaced(status, replica, due, had_started=self.had_started(ended.pod))
            status = status.model_copy(update={"replica_statuses": counts})
            when = f" at {format_deadline(due)}" if due > now else ""
            message = f"{PodLosses((ended,)).message}; it starts again alone{when}"
            said.append(Emit("Warning", Reason.REPLICA_RESTARTED, message))
        again = (RequeueAfter(min(waits)),) if waits else ()
        if not said:
            return (*self.run(done), *again)
        waiting = DesiredCondition("False", Reason.WAITING_FOR_PODS, said[-1].message)
        recorded = PatchStatus(self.view.with_conditions(status, DesiredConditions(pods_ready=waiting)))
        return (recorded, *said, RequeueAfter(0.0))

    def _restart_times(self) -> Iterator[datetime]:
        """When the replicas that were replaced alone came back, or will."""
        for replica in replicas(self.spec):
            if not self.alone(replica):
                continue
            name = self.name_of(replica)
            pod = next((pod for pod in self.current() if pod.name == name), None)
            moment = self.restart_due(replica) if pod is None else pod.created_at
            if moment is not None and (pod is None or not pod.ended):
                yield moment

    def _wait_for_the_record(self, newer: tuple[Pod, ...]) -> Plan:
        """Touch nothing until the job's own record has come. Where it was lost, all start again under a number above
        theirs; recording that comes first, and fails where what we know is old after all."""
        wait = record.seconds_to_wait(newer, self.view.now)
        if wait > 0:
            return (RequeueAfter(wait),)
        known = self.job.status.model_copy(update={"attempt": record.latest_attempt(newer, self.job)})
        return self._begin_attempt("Warning", f"the job's status does not know of pod {newer[0].name}", known)

    # -- ending ----------------------------------------------------------------------------------------------

    def _finish(self, outcome: Success | Failure) -> Plan:
        """The one way to end. The outcome is recorded first; the job has ended when all that must stop is gone."""
        to_stop = [(pod, seconds_until_given_up(pod, self.job.status, self.view.now)) for pod in self.view.to_stop()]
        hanging = [pod for pod, wait in to_stop if wait is not None and wait <= 0]
        leftovers = [pod for pod, _ in to_stop if pod not in hanging]
        met = DesiredCondition("True", outcome.reason, outcome.message)
        ready = DesiredCondition("False", Reason.STOPPING_PODS if leftovers else Reason.JOB_FINISHED)
        desired = (
            DesiredConditions(pods_ready=ready, success_criteria_met=met)
            if isinstance(outcome, Success)
            else DesiredConditions(pods_ready=ready, failure_target=met)
        )
        cause = outcome.cause if isinstance(outcome, Failure) else None
        status = self.status(starting=frozenset()).model_copy(update={"root_cause": cause, "pending_restart": None})
        status = status if isinstance(outcome, Success) else without_a_guess(status)
        if leftovers:
            changed = self.view.patch(self.view.with_conditions(status, desired))
            waits = [wait for _, wait in to_stop if wait is not None and wait > 0]
            return (*changed, *self.view.stop_pods(), *((RequeueAfter(min(waits)),) if waits else ()))
        if self.drop_gang():
            return (*self.view.patch(self.view.with_conditions(status, desired)), *self.drop_gang())
        desired = replace(desired, complete=met) if isinstance(outcome, Success) else replace(desired, failed=met)
        if hanging:
            words = f"{outcome.message}; {first_few(map(_where, hanging))} did not stop in time"
            met = replace(met, message=words)
            desired = replace(desired, **{"complete" if isinstance(outcome, Success) else "failed": met})
        status = status.model_copy(update={"completion_time": format_time(self.view.now)})
        return (
            PatchStatus(self.view.with_conditions(status, desired)),
            Emit("Normal" if isinstance(outcome, Success) else "Warning", outcome.reason, met.message),
            *((RequeueAfter(0.0),) if self.view.drop_service() else ()),
            *self._kept(),
        )

    def _kept(self) -> tuple[RequeueAfter, ...]:
        """For how long a job that has just ended is kept."""
        seconds = self.spec.run_policy.ttl_seconds_after_finished
        return (RequeueAfter(float(seconds)),) if seconds is not None else ()
