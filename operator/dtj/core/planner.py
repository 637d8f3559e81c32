"""The planner: from what is observed of a job to what is to be done about it.

Pure and level-triggered. It remembers nothing: whatever must survive is in the job's status, and is recorded
there before anything depends on it. A job whose world does not change gets an empty plan, or one that only says when
its next deadline is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from dtj.api import names
from dtj.api.json import dig
from dtj.api.names import Condition, Reason
from dtj.api.spec import Role
from dtj.api.status import JobStatus
from dtj.core import blockers, deadlines, manifests, recovery
from dtj.core.endings import Ended, Ending
from dtj.core.observed import Observed, Pod
from dtj.core.outcome import Failure, Loss, Success, concerns_all, decide, replica_of, root_cause
from dtj.core.picture import Picture
from dtj.core.plan import (
    Action,
    ApplyService,
    CheckPods,
    CreateClaim,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeleteService,
    Emit,
    PatchStatus,
    Plan,
    PointService,
    RequeueAfter,
)
from dtj.core.replicas import Replica, replicas, worker_selector
from dtj.core.status import (
    Assertion,
    Verdicts,
    format_time,
    ready_text,
    replica_statuses,
)
from dtj.core.validity import Problem, problems
from dtj.core.view import View, writes

COLLISION_RETRY_SECONDS = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

COLLISION_PATIENCE_SECONDS = 10.0
"""For how long a new job does not complain of names that are taken."""

TEMPLATE_RECHECK_SECONDS = 60.0
"""When to ask again about a rejected template: it may have been an admission policy that is mended by now."""

STUCK_SECONDS = 30.0
"""How long after its grace period a pod that does not go away is given up; its node is dead, most likely."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about ``observed.job`` at ``now`` (an aware datetime); ordered, empty where nothing is.

    Never raises for anything that an API server can store.
    """
    job = observed.job
    if job.deleting or not job.uid or dig(job.raw_spec, "runPolicy", "managedBy") not in (None, names.CONTROLLER):
        return ()
    view = View.of(observed, now)
    if job.status.terminal:
        return view.stop_pods() or _removal(view)
    found = problems(job, observed.platform)
    if job.spec is None:
        return view.report_invalid(found)
    return _Valid(view=view, spec=job.spec).plan(found)


def _removal(view: View) -> Plan:
    due = deadlines.removal(view.job, view.job.spec) if view.job.spec is not None else None
    if due is None:
        return ()
    wait = (due - view.now).total_seconds()
    return (RequeueAfter(wait),) if wait > 0 else (DeleteJob(),)


@dataclass(frozen=True, slots=True)
class _Valid(Picture):
    """Planning of a job whose manifest can be read."""

    def plan(self, found: tuple[Problem, ...]) -> Plan:
        recorded = self._recorded_outcome()
        if recorded is not None:
            return self._finish(recorded)
        done = self.done()
        outcome = decide(self.spec, self.current(), done)
        if isinstance(outcome, Success):
            return self._finish(outcome)
        suspend = self.spec.run_policy.suspend
        if suspend and (self.view.own or self.job.status.start_time is not None or not found):
            return self._suspend()
        late = self._late(done, found)
        if late is not None:
            return self._finish(late)
        return (*self._go_on(outcome, done, found), *self._deadlines())

    def _go_on(self, loss: Loss | None, done: frozenset[Replica], found: tuple[Problem, ...]) -> Plan:
        if found:
            return self.view.report_invalid(found)
        resized = self._resized(done)
        if resized is not None:
            return self._resize(resized)
        lost = [*(loss.ends if loss is not None else ()), *self._vanished(done)]
        if lost:
            lost.sort(key=lambda ended: ended.ending is Ending.PEER_LOST)  # a follow-up, also of a pod that vanished
            return self._recover(Loss(tuple(lost)), done)
        collision = self._collision()
        return collision if collision is not None else self._run(done)

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

    # -- suspending ------------------------------------------------------------------------------------------

    def _suspend(self) -> Plan:
        """Stop what runs, by our own will: whatever its pods' exit codes are then, nothing has failed.

        The next attempt's number is recorded first, so that resumed pods need not wait for the names of these.
        """
        status = self.job.status
        started = status.start_time is not None
        told = Assertion("True", Reason.SUSPENDED, "set runPolicy.suspend to false to go on")
        counts = replica_statuses(
            self.spec, (), done=frozenset(), starting=frozenset(), recorded=status.replica_statuses
        )
        status = status.model_copy(
            update={
                "start_time": None,
                "ready_time": None,
                "attempt": self.attempt + 1 if started else status.attempt,
                "replica_statuses": counts,
                "ready": ready_text(self.spec, counts),
                "selector": worker_selector(self.job.name),
            }
        )
        verdicts = Verdicts(pods_ready=Assertion("False", Reason.SUSPENDED), suspended=told)
        changed = self.view.patch(self.view.with_verdicts(status, verdicts))
        if started:
            words = f"stopping {len([pod for pod in self.view.own if not pod.ended])} pods"
            return (*changed, Emit("Normal", Reason.SUSPENDED, words), RequeueAfter(0.0))
        stop = tuple(DeletePod(pod.name, pod.uid) for pod in self.view.own if not pod.terminating)
        service = self.view.observed.service
        ours = service is not None and service.owner_uid == self.job.uid
        drop = (DeleteService(service.name, service.uid),) if service is not None and ours else ()
        return (*changed, *stop, *drop)

    # -- running ---------------------------------------------------------------------------------------------

    def _collision(self) -> Plan | None:
        """Objects with our names that are not ours: said aloud, and nothing is created around them."""
        ours = {self.name_of(replica) for replica in replicas(self.spec)}
        taken = [f'pod "{pod.name}"' for pod in self.view.strangers if pod.name in ours]
        for kind, child in (
            ("service", self.view.observed.service),
            ("persistentvolumeclaim", self.claim_in_use()),
        ):
            if child is not None and child.owner_uid != self.job.uid:
                taken.append(f'{kind} "{child.name}"')
        if not taken:
            return None
        patience = self._patience()
        if patience > 0:
            return (RequeueAfter(patience),)
        message = (
            f"{', '.join(sorted(taken))} exists and belongs to something else: it is left alone; "
            "delete it, or give this job another name"
        )
        verdicts = Verdicts(pods_ready=Assertion("False", Reason.NAME_TAKEN, message))
        changed = self.view.patch(self.view.with_verdicts(self.status(starting=frozenset()), verdicts))
        said = (Emit("Warning", Reason.NAME_TAKEN, message),) if writes(changed) else ()
        return (*changed, *said, RequeueAfter(COLLISION_RETRY_SECONDS))

    def _patience(self) -> float:
        """Seconds for which a new job waits in silence for its names.

        Of a job that was deleted and created anew, the predecessor's objects are about to be collected.
        """
        created = self.job.created_at
        return COLLISION_PATIENCE_SECONDS - (self.view.now - created).total_seconds() if created is not None else 0.0

    def _check_template(self) -> Plan | None:
        """Before pods are created: does the API server take one of each role? Its own words go into the status.

        Where the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it.
        A job that has started is not invalid any more: what is refused then is said when its pod is created.
        """
        verdict = self.verdict
        if verdict is None or (verdict.wants_restricted and not verdict.restricted):
            restricted = self.view.observed.platform.restricted or verdict is not None
            first_of_role = (Replica(role, 0) for role in self.spec.roles())
            check = CheckPods(self.job.generation, self.pods(first_of_role, restricted=restricted), restricted)
            return (*self._obstructed(), check)
        if not verdict.errors or self.view.own or self.job.status.start_time is not None:
            return None
        found = tuple(Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors)
        return (*self.view.report_invalid(found), RequeueAfter(TEMPLATE_RECHECK_SECONDS))

    def _obstructed(self) -> Plan:
        """Nothing else is written before the pods are checked, which may be what keeps failing."""
        if not self.view.observed.obstacle:
            return ()
        return self.view.patch(self.view.with_verdicts(self.status(starting=frozenset()), Verdicts()))

    def _run(self, done: frozenset[Replica]) -> Plan:
        missing = self.missing(done)
        held = {replica: wait for replica in missing if (wait := self._room_in(replica)) > 0}
        wanted = [replica for replica in missing if replica not in held]
        check = self._check_template() if wanted else None
        if check is not None:
            return check
        creations = (*self._left_behind(), *self._shared_objects(), *map(CreatePod, self.pods(wanted)))
        first_pods = not self.current()
        status = self.status(starting=frozenset(wanted))
        starting = status.start_time is None
        if starting:
            status = status.model_copy(update={"start_time": format_time(self.view.now), "attempt": self.attempt})
        readiness = self.readiness(done, status)
        if readiness.status == "True" and status.ready_time is None:
            status = status.model_copy(update={"ready_time": format_time(self.view.now)})
        changed = self.view.patch(self.view.with_verdicts(status, Verdicts(pods_ready=readiness)))
        events = self._events(wanted, starting=starting, changed=writes(changed))
        # How many replicas the pods of an attempt are told of is recorded before the first of them exists.
        made = (*changed, *creations) if first_pods else (*creations, *changed)
        again = (RequeueAfter(min(held.values())),) if held else ()
        return (*made, *events, *self._blocked_news(readiness, changed=writes(changed)), *again)

    def _room_in(self, replica: Replica) -> float:
        """Seconds for which a replica that comes back alone waits for its predecessor: two must not share an address.

        One that hangs on a dead node is given up some time after its grace period.
        """
        if not self.alone(replica):
            return 0.0
        before = [pod for pod in self.view.own if replica_of(pod) == replica and not pod.ended]
        waits = [
            (pod.deletion_due - self.view.now).total_seconds() + STUCK_SECONDS
            if pod.deletion_due is not None
            else STUCK_SECONDS
            for pod in before
            if pod.attempt >= self.attempt
        ]
        return max(waits, default=0.0)

    def _events(self, created: list[Replica], *, starting: bool, changed: bool) -> tuple[Emit, ...]:
        refusal = self.view.observed.refusal
        if refusal is not None:
            message = f"{refusal.name}: {refusal.message}"
            return (Emit("Warning", Reason.POD_CREATION_FAILED, message),) if changed else ()
        if not created:
            return ()
        if not starting and self.current():
            gone = len([replica for replica in created if not self.alone(replica)])
            return (Emit("Warning", Reason.REPLICA_LOST, f"created {gone} pods anew that were gone"),) if gone else ()
        roles = ", ".join(f"{self.spec.replicas(role)} {role}" for role in self.spec.roles())
        which = f" for attempt {self.attempt}" if self.attempt > 1 else ""
        said = Emit("Normal", Reason.PODS_CREATED, f"created {len(created)} pods{which} ({roles})")
        if starting and self.job.status.is_true(Condition.SUSPENDED):
            return (Emit("Normal", Reason.RESUMED, f"resumed as attempt {self.attempt}"), said)
        return (said,)

    def _blocked_news(self, readiness: Assertion, *, changed: bool) -> tuple[Action, ...]:
        """An event when a kind of blocker first shows, and another look at pods too young to be named."""
        before = self.job.status.condition(Condition.PODS_READY)
        new = readiness.reason in blockers.REASONS and (before is None or before.reason != readiness.reason)
        wait = blockers.seconds_until_named(self.blocked(), self.view.now)
        return (
            *((Emit("Warning", readiness.reason, readiness.message),) if new and changed else ()),
            *((RequeueAfter(wait),) if wait is not None else ()),
        )

    def _shared_objects(self) -> tuple[Action, ...]:
        """Claim and Service, before the pods that need them."""
        claim = manifests.claim(self.job, self.spec)
        return (
            *((CreateClaim(claim),) if claim is not None and self.view.observed.claim is None else ()),
            *self._service(),
        )

    def _service(self) -> tuple[Action, ...]:
        """The Service; the addresses of an older attempt vanish when it selects this one."""
        service = self.view.observed.service
        if service is None:
            return (ApplyService(manifests.service(self.job, self.spec, attempt=self.attempt)),)
        selector = manifests.service_selector(self.job, self.attempt)
        return (PointService(service.name, selector),) if service.selector != selector else ()

    def _left_behind(self) -> tuple[Action, ...]:
        """What is left of older incarnations. Pods that failed are kept: their logs are evidence."""
        older = (pod for pod in self.view.own if not pod.ended and not self.is_current(pod))
        return tuple(DeletePod(pod.name, pod.uid) for pod in older if not pod.terminating)

    # -- recovering ------------------------------------------------------------------------------------------

    def _vanished(self, done: frozenset[Replica]) -> tuple[Ended, ...]:
        """Replicas whose pods were all there, as the status says, and are gone without a trace."""
        if not self.job.status.is_true(Condition.PODS_READY):
            return ()
        return tuple(
            Ended(
                Pod(
                    namespace=self.job.namespace,
                    name=self.name_of(replica),
                    uid="",
                    owner_uid=self.job.uid,
                    job_name=self.job.name,
                    role=replica.role,
                    index=replica.index,
                ),
                Ending.DISRUPTION,
                self.view.now,
            )
            for replica in self.missing(done)
        )

    def _recover(self, loss: Loss, done: frozenset[Replica]) -> Plan:
        """A replica was lost: it comes back alone, or all start again from the checkpoint, or the job has failed.

        Where all must start again, the first end is the one that is charged: the others are its consequences.
        """
        status, now = self.job.status, self.view.now
        if not any(concerns_all(self.spec, ended.pod) for ended in loss.ends):
            return self._replace(loss, done)
        refused = recovery.refusal(self.spec, status, loss.first)
        if refused is not None:
            return self._finish(refused)
        due = recovery.due(status, loss.first, all_at_once=True, now=now)
        if now < due:
            return (*self._waiting(done, loss, due), RequeueAfter(self.seconds_until(due)))
        return self._begin_attempt("Warning", loss.message, loss.first)

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
        wait = self.seconds_until(recovery.next_attempt(self.job.status, self.view.now))
        return (RequeueAfter(wait),) if wait > 0 else self._begin_attempt("Normal", how, None)

    def _waiting(self, done: frozenset[Replica], loss: Loss, due: datetime) -> Plan:
        """Until a new attempt may begin, only what is seen is recorded."""
        status = self.status(starting=frozenset())
        restarting = Assertion("True", Reason.BACKOFF, f"{loss.message}; the next attempt begins at {format_time(due)}")
        verdicts = Verdicts(pods_ready=self.readiness(done, status), restarting=restarting)
        return self.view.patch(self.view.with_verdicts(status, verdicts))

    def _begin_attempt(self, kind: Literal["Normal", "Warning"], why: str, ended: Ended | None) -> Plan:
        """Recorded before any pod is touched; the next pass finds pods of an older attempt, and replaces them."""
        number = self.attempt + 1
        message = f"attempt {number}: {why}; all replicas start again from the last checkpoint"
        before = self.job.status
        status = self._charged(before, ended).model_copy(
            update={
                "attempt": number,
                "last_restart_time": format_time(self.view.now),
                "replica_statuses": replica_statuses(
                    self.spec, (), done=frozenset(), starting=frozenset(), recorded=before.replica_statuses
                ),
                "ready": ready_text(self.spec, {}),
            }
        )
        starting = Assertion("False", Reason.NEW_ATTEMPT, message)
        verdicts = Verdicts(pods_ready=starting, restarting=replace(starting, status="True"))
        return (
            PatchStatus(self.view.with_verdicts(status, verdicts)),
            Emit(kind, Reason.NEW_ATTEMPT, message),
            RequeueAfter(0.0),  # nothing else may happen that would start the next pass
        )

    def _replace(self, loss: Loss, done: frozenset[Replica]) -> Plan:
        """Replicas that come back alone, each when its time has come; the others go on meanwhile."""
        status = self.job.status
        waits: list[float] = []
        said: list[Emit] = []
        for ended in loss.ends:
            replica = replica_of(ended.pod)
            if replica is None:
                continue
            refused = recovery.refusal(self.spec, status, ended)
            if refused is not None:
                return self._finish(refused)
            due = recovery.due(status, ended, all_at_once=False, now=self.view.now)
            if self.view.now < due:
                waits.append(self.seconds_until(due))
                continue
            status = self._charged(status, ended)
            status = status.model_copy(update={"replica_statuses": recovery.replaced(status, replica)})
            message = f"{Loss((ended,)).message}; it starts again alone"
            said.append(Emit("Warning", Reason.REPLICA_RESTARTED, message))
        again = (RequeueAfter(min(waits)),) if waits else ()
        if not said:
            return (*self._run(done), *again)
        waiting = Assertion("False", Reason.WAITING_FOR_PODS, said[-1].message)
        recorded = PatchStatus(self.view.with_verdicts(status, Verdicts(pods_ready=waiting)))
        return (recorded, *said, RequeueAfter(0.0))

    @staticmethod
    def _charged(status: JobStatus, ended: Ended | None) -> JobStatus:
        """``status`` with a restart more, and with the cause where it was an error."""
        if ended is None:
            return status
        update: dict[str, object] = {"restarts": recovery.charged(status.restarts, ended.ending)}
        if not ended.by_infrastructure:
            update["root_cause"] = root_cause(ended)
        return status.model_copy(update=update)

    # -- ending ----------------------------------------------------------------------------------------------

    def _finish(self, outcome: Success | Failure) -> Plan:
        """The one way to end. The outcome is recorded first; the job has ended when all that must stop is gone."""
        leftovers = self.view.to_stop()
        met = Assertion("True", outcome.reason, outcome.message)
        ready = Assertion("False", Reason.STOPPING_PODS if leftovers else Reason.JOB_FINISHED)
        verdicts = (
            Verdicts(pods_ready=ready, success_criteria_met=met)
            if isinstance(outcome, Success)
            else Verdicts(pods_ready=ready, failure_target=met)
        )
        cause = outcome.cause if isinstance(outcome, Failure) else None
        status = self.status(starting=frozenset()).model_copy(update={"root_cause": cause})
        if leftovers:
            return (*self.view.patch(self.view.with_verdicts(status, verdicts)), *self.view.stop_pods())
        verdicts = replace(verdicts, complete=met) if isinstance(outcome, Success) else replace(verdicts, failed=met)
        status = status.model_copy(update={"completion_time": format_time(self.view.now)})
        return (
            PatchStatus(self.view.with_verdicts(status, verdicts)),
            Emit("Normal" if isinstance(outcome, Success) else "Warning", outcome.reason, outcome.message),
            *self._kept(),
        )

    def _kept(self) -> tuple[RequeueAfter, ...]:
        """For how long a job that has just ended is kept."""
        seconds = self.spec.run_policy.ttl_seconds_after_finished
        return (RequeueAfter(float(seconds)),) if seconds is not None else ()
