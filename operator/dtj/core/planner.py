"""The planner: from what is observed of a job to what is to be done about it.

Pure and level-triggered. It remembers nothing: whatever must survive is in the job's status, and is recorded
there before anything depends on it. A job whose world does not change gets an empty plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.api.spec import CleanPodPolicy, JobSpec, Role
from dtj.api.status import JobStatus, RootCause
from dtj.core import blockers, manifests
from dtj.core.endings import Ending, endings
from dtj.core.observed import Child, Observed, Pod, TemplateVerdict
from dtj.core.outcome import Failure, Interruption, Success, completed, concerns_all, decide
from dtj.core.plan import (
    Action,
    ApplyService,
    CheckPods,
    CreateClaim,
    CreatePod,
    DeletePod,
    Emit,
    PatchStatus,
    Plan,
    PointService,
    RequeueAfter,
)
from dtj.core.replicas import Replica, pod_name, replicas, worker_selector
from dtj.core.status import (
    Assertion,
    Verdicts,
    conditions,
    differs_only_in_counts,
    differs_only_in_words,
    format_time,
    is_ready,
    ready_text,
    recorded_completions,
    replica_statuses,
    state,
)
from dtj.core.validity import Problem, problems

COUNT_UPDATE_INTERVAL = timedelta(seconds=10)
"""Least time between two status writes that change nothing but numbers of pods.

A start of many pods would else cost a write for each of them.
"""

WORDS_UPDATE_INTERVAL = timedelta(seconds=60)
"""Least time between two status writes that change nothing but messages.

The scheduler's and the kubelet's words may change at every attempt, for as long as a pod cannot start.
"""

COLLISION_RETRY_SECONDS = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

COLLISION_PATIENCE_SECONDS = 10.0
"""For how long a new job does not complain of names that are taken."""

CAUSE_PATIENCE = timedelta(seconds=5)
"""For how long the cause is waited for, when all that is known is that a replica lost a peer."""

ATTEMPT_INTERVAL = timedelta(seconds=10)
"""Least time between two attempts: a node that refuses every pod at once must not be asked without end."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about ``observed.job`` at ``now`` (an aware datetime); ordered, empty where nothing is.

    Never raises for anything that an API server can store.
    """
    job = observed.job
    if job.deleting or not job.uid:
        return ()
    view = _View.of(observed, now)
    if job.status.terminal:
        return view.stop_pods()
    found = problems(job, observed.platform)
    if found or job.spec is None:
        return view.report_invalid(found)
    return _Valid(view=view, spec=job.spec).plan()


def _writes(actions: tuple[Action, ...]) -> bool:
    """Whether the status is written now, rather than later or not at all."""
    return any(isinstance(action, PatchStatus) for action in actions)


@dataclass(frozen=True, slots=True)
class _View:
    """An observation with its pods told apart: ours by owner UID, and strangers."""

    observed: Observed
    now: datetime
    own: tuple[Pod, ...]
    strangers: tuple[Pod, ...]

    @classmethod
    def of(cls, observed: Observed, now: datetime) -> _View:
        own = tuple(pod for pod in observed.pods if pod.owner_uid == observed.job.uid)
        strangers = tuple(pod for pod in observed.pods if pod.owner_uid != observed.job.uid)
        return cls(observed=observed, now=now, own=own, strangers=strangers)

    @property
    def job(self) -> Job:
        return self.observed.job

    def to_stop(self) -> tuple[Pod, ...]:
        """Our pods that the clean-up policy wants gone and that are not gone yet."""
        spec = self.job.spec
        policy = spec.run_policy.clean_pod_policy if spec is not None else CleanPodPolicy.NONE
        if policy is CleanPodPolicy.NONE:
            return ()
        return tuple(pod for pod in self.own if policy is CleanPodPolicy.ALL or not pod.ended)

    def stop_pods(self) -> tuple[DeletePod, ...]:
        """Delete what must stop; what is already on its way out needs no second call."""
        return tuple(DeletePod(pod.name, pod.uid) for pod in self.to_stop() if not pod.terminating)

    def patch(self, status: JobStatus) -> tuple[Action, ...]:
        """Write ``status`` where it differs from the stored one; mere counts wait for their turn."""
        before = self.job.status
        if status == before:
            return ()
        written = self.observed.status_written_at
        if written is not None and differs_only_in_counts(before, status):
            words = differs_only_in_words(before, status)
            due = written + (WORDS_UPDATE_INTERVAL if words else COUNT_UPDATE_INTERVAL)
            if self.now < due:
                return (RequeueAfter((due - self.now).total_seconds()),)
        return (PatchStatus(status),)

    def with_verdicts(self, base: JobStatus, verdicts: Verdicts) -> JobStatus:
        """``base`` with conditions and summary as ``verdicts`` say."""
        word, reason = state(verdicts, started=base.start_time is not None)
        return base.model_copy(
            update={
                "observed_generation": self.job.generation,
                "state": str(word),
                "reason": str(reason),
                "conditions": conditions(
                    self.job.status.conditions, verdicts, generation=self.job.generation, now=self.now
                ),
            }
        )

    def report_invalid(self, found: tuple[Problem, ...]) -> Plan:
        """Say what is wrong; nothing is created, and what runs already is left alone."""
        reason = found[0].reason if found else Reason.INVALID_SPEC
        message = "; ".join(problem.message for problem in found) or "spec: cannot be read"
        invalid = Assertion("True", reason, message)
        status = self.with_verdicts(
            self.job.status,
            Verdicts(pods_ready=Assertion("False", Reason.PENDING, "the job is not valid"), invalid=invalid),
        )
        changed = self.patch(status)
        return (*changed, Emit("Warning", reason, message)) if _writes(changed) else changed


@dataclass(frozen=True, slots=True)
class _Valid:
    """Planning of a job whose manifest can be planned."""

    view: _View
    spec: JobSpec

    @property
    def job(self) -> Job:
        return self.view.job

    @property
    def attempt(self) -> int:
        return max(self.job.status.attempt, 1)

    def plan(self) -> Plan:
        status = self.job.status
        if status.is_true(Condition.SUCCESS_CRITERIA_MET):
            return self._finish(Success(self._recorded_message(Condition.SUCCESS_CRITERIA_MET)))
        if status.is_true(Condition.FAILURE_TARGET):
            cause = status.root_cause or RootCause()
            return self._finish(Failure(cause, self._recorded_message(Condition.FAILURE_TARGET)))
        done = self._done()
        outcome = decide(self.spec, self._current(), done)
        if isinstance(outcome, Success | Failure):
            return self._finish(outcome)
        resized = self._resized(done)
        if resized is not None:
            return self._resize(resized)
        if outcome is not None:
            return self._recover(outcome, done)
        collision = self._collision()
        return collision if collision is not None else self._run(done)

    def _done(self) -> frozenset[Replica]:
        return completed(self._current(), recorded_completions(self.job.status))

    def _current(self) -> tuple[Pod, ...]:
        """Our pods of this attempt."""
        return tuple(pod for pod in self.view.own if pod.attempt >= self.attempt)

    def _name(self, replica: Replica) -> str:
        return pod_name(self.job.name, replica, self.attempt)

    def _recorded_message(self, kind: Condition) -> str:
        condition = self.job.status.condition(kind)
        return condition.message if condition is not None else ""

    # -- running ---------------------------------------------------------------------------------------------

    def _collision(self) -> Plan | None:
        """Objects with our names that are not ours: said aloud, and nothing is created around them."""
        ours = {self._name(replica) for replica in replicas(self.spec)}
        taken = [f'pod "{pod.name}"' for pod in self.view.strangers if pod.name in ours]
        for kind, child in (
            ("service", self.view.observed.service),
            ("persistentvolumeclaim", self._claim_in_use()),
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
        changed = self.view.patch(self.view.with_verdicts(self._status(starting=frozenset()), verdicts))
        said = (Emit("Warning", Reason.NAME_TAKEN, message),) if _writes(changed) else ()
        return (*changed, *said, RequeueAfter(COLLISION_RETRY_SECONDS))

    def _patience(self) -> float:
        """Seconds for which a new job waits in silence for its names.

        Of a job that was deleted and created anew, the predecessor's objects are about to be collected.
        """
        created = self.job.created_at
        return COLLISION_PATIENCE_SECONDS - (self.view.now - created).total_seconds() if created is not None else 0.0

    def _claim_in_use(self) -> Child | None:
        wanted = manifests.claim(self.job, self.spec)
        return self.view.observed.claim if wanted is not None else None

    def _check_template(self) -> Plan | None:
        """Before pods are created: does the API server take one of each role? Its own words go into the status.

        Where the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it.
        A job that has started is not invalid any more: what is refused then is said when its pod is created.
        """
        verdict = self._verdict
        if verdict is None or (verdict.wants_restricted and not verdict.restricted):
            restricted = self.view.observed.platform.restricted or verdict is not None
            first_of_role = (Replica(role, 0) for role in self.spec.roles())
            return (CheckPods(self.job.generation, self._pods(first_of_role, restricted=restricted), restricted),)
        if not verdict.errors or self.view.own or self.job.status.start_time is not None:
            return None
        return self.view.report_invalid(tuple(Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors))

    @property
    def _verdict(self) -> TemplateVerdict | None:
        """What the API server said of this generation's pods."""
        verdict = self.view.observed.verdict
        return verdict if verdict is not None and verdict.generation == self.job.generation else None

    def _run(self, done: frozenset[Replica]) -> Plan:
        present = {pod.name for pod in self.view.own}
        missing = [
            replica for replica in replicas(self.spec) if replica not in done and self._name(replica) not in present
        ]
        check = self._check_template() if missing else None
        if check is not None:
            return check
        creations = (*self._left_behind(), *self._shared_objects(), *map(CreatePod, self._pods(missing)))
        first_pods = not self._current()
        status = self._status(starting=frozenset(missing))
        starting = status.start_time is None
        if starting:
            status = status.model_copy(update={"start_time": format_time(self.view.now), "attempt": self.attempt})
        readiness = self._readiness(done, status)
        changed = self.view.patch(self.view.with_verdicts(status, Verdicts(pods_ready=readiness)))
        events = self._events(len(missing), starting=starting, changed=_writes(changed))
        # How many replicas the pods of an attempt are told of is recorded before the first of them exists.
        made = (*changed, *creations) if first_pods else (*creations, *changed)
        return (*made, *events, *self._blocked_news(readiness, changed=_writes(changed)))

    def _events(self, created: int, *, starting: bool, changed: bool) -> tuple[Emit, ...]:
        refusal = self.view.observed.refusal
        if refusal is not None:
            message = f"{refusal.name}: {refusal.message}"
            return (Emit("Warning", Reason.POD_CREATION_FAILED, message),) if changed else ()
        if not created:
            return ()
        if not starting and self._current():
            return (Emit("Warning", Reason.REPLICA_LOST, f"created {created} pods anew that were gone"),)
        roles = ", ".join(f"{self.spec.replicas(role)} {role}" for role in self.spec.roles())
        which = f" for attempt {self.attempt}" if self.attempt > 1 else ""
        return (Emit("Normal", Reason.PODS_CREATED, f"created {created} pods{which} ({roles})"),)

    def _blocked(self) -> tuple[Pod, ...]:
        """Our pods that something keeps from starting, in the order of their replicas."""
        by_name = {pod.name: pod for pod in self._current()}
        ours = (by_name.get(self._name(replica)) for replica in replicas(self.spec))
        return blockers.blocked(pod for pod in ours if pod is not None)

    def _blocked_news(self, readiness: Assertion, *, changed: bool) -> tuple[Action, ...]:
        """An event when a kind of blocker first shows, and another look at pods too young to be named."""
        before = self.job.status.condition(Condition.PODS_READY)
        new = readiness.reason in blockers.REASONS and (before is None or before.reason != readiness.reason)
        wait = blockers.seconds_until_named(self._blocked(), self.view.now)
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
        """What is left of an older attempt, and what a pod that shall come back leaves in its place.

        Pods of an older attempt that failed are kept: their logs are evidence.
        """
        older = (pod for pod in self.view.own if pod.attempt < self.attempt and not pod.ended)
        lost = (e.pod for e in endings(self._current()) if e.by_infrastructure and not concerns_all(self.spec, e.pod))
        return tuple(DeletePod(pod.name, pod.uid) for pods in (older, lost) for pod in pods if not pod.terminating)

    # -- recovering ------------------------------------------------------------------------------------------

    def _recover(self, interruption: Interruption, done: frozenset[Replica]) -> Plan:
        """The infrastructure took a replica away: it comes back alone, or all start again from the checkpoint."""
        first = interruption.first
        if not concerns_all(self.spec, first.pod):
            return self._run(done)
        due = first.at + CAUSE_PATIENCE if first.ending is Ending.PEER_LOST else self.view.now
        wait = self._seconds_until(max(due, self._next_attempt_due()))
        if wait > 0:
            return (*self._waiting(done), RequeueAfter(wait))
        return self._begin_attempt("Warning", interruption.message)

    def _resized(self, done: frozenset[Replica]) -> str | None:
        """How the number of workers differs from the one that this attempt was started with, if it does.

        As long as nothing of the attempt is there, it simply starts with the new number.
        """
        recorded = self.job.status.replica_statuses.get(Role.WORKER)
        wanted = self.spec.replicas(Role.WORKER)
        started = self.job.status.start_time is not None and bool(self._current() or done)
        if self.spec.elastic is None or recorded is None or recorded.desired == wanted or not started:
            return None
        return f"workers scaled from {recorded.desired} to {wanted}"

    def _resize(self, how: str) -> Plan:
        """All start again with the same list of workers; until then the recorded number is left as it is."""
        wait = self._seconds_until(self._next_attempt_due())
        return (RequeueAfter(wait),) if wait > 0 else self._begin_attempt("Normal", how)

    def _next_attempt_due(self) -> datetime:
        latest = parse_time(self.job.status.last_restart_time)
        return latest + ATTEMPT_INTERVAL if latest is not None else self.view.now

    def _seconds_until(self, moment: datetime) -> float:
        return (moment - self.view.now).total_seconds()

    def _waiting(self, done: frozenset[Replica]) -> Plan:
        """Until a new attempt may begin, only what is seen is recorded."""
        status = self._status(starting=frozenset())
        return self.view.patch(self.view.with_verdicts(status, Verdicts(pods_ready=self._readiness(done, status))))

    def _begin_attempt(self, kind: Literal["Normal", "Warning"], why: str) -> Plan:
        """Recorded before any pod is touched; the next pass finds pods of an older attempt, and replaces them."""
        number = self.attempt + 1
        message = f"attempt {number}: {why}; all replicas start again from the last checkpoint"
        status = self.job.status.model_copy(
            update={
                "attempt": number,
                "last_restart_time": format_time(self.view.now),
                "replica_statuses": replica_statuses(self.spec, (), done=frozenset(), starting=frozenset()),
                "ready": ready_text(self.spec, {}),
            }
        )
        starting = Assertion("False", Reason.NEW_ATTEMPT, message)
        return (
            PatchStatus(self.view.with_verdicts(status, Verdicts(pods_ready=starting))),
            Emit(kind, Reason.NEW_ATTEMPT, message),
            RequeueAfter(0.0),  # nothing else may happen that would start the next pass
        )

    def _readiness(self, done: frozenset[Replica], status: JobStatus) -> Assertion:
        refusal = self.view.observed.refusal
        if refusal is not None:
            return Assertion("False", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
        up = {pod.name for pod in self._current() if is_ready(pod)}
        if all(r in done or self._name(r) in up for r in replicas(self.spec)):
            return Assertion("True", Reason.ALL_PODS_READY)
        ready = f"{status.ready.replace('/', ' of ')} pods are ready"
        pod = blockers.named(self._blocked(), self.view.now)
        if pod is not None and pod.blocker is not None:
            return Assertion("False", pod.blocker.reason, f"{ready}; {pod.name}: {pod.blocker.message}")
        return Assertion("False", Reason.WAITING_FOR_PODS, ready)

    def _pods(self, wanted: Iterable[Replica], *, restricted: bool = False) -> tuple[JsonObject, ...]:
        """Their manifests; made to fit the Pod Security Standard "restricted" where the namespace was found to
        enforce it, too."""
        platform = self.view.observed.platform
        if restricted or (self._verdict is not None and self._verdict.restricted):
            platform = replace(platform, restricted=True)
        return manifests.pods(self.job, self.spec, wanted, platform=platform, attempt=self.attempt)

    def _status(self, *, starting: frozenset[Replica]) -> JobStatus:
        counts = replica_statuses(self.spec, self._current(), done=self._done(), starting=starting)
        return self.job.status.model_copy(
            update={
                "replica_statuses": counts,
                "ready": ready_text(self.spec, counts),
                "selector": worker_selector(self.job.name),
            }
        )

    # -- ending ----------------------------------------------------------------------------------------------

    def _finish(self, outcome: Success | Failure) -> Plan:
        """The one way to end. The outcome is recorded first; the job has ended when all that must stop is gone."""
        leftovers = self.view.to_stop()
        met = Assertion("True", Reason.JOB_FINISHED, outcome.message)
        ready = Assertion("False", Reason.STOPPING_PODS if leftovers else Reason.JOB_FINISHED)
        verdicts = (
            Verdicts(pods_ready=ready, success_criteria_met=met)
            if isinstance(outcome, Success)
            else Verdicts(pods_ready=ready, failure_target=met)
        )
        status = self._status(starting=frozenset())
        if isinstance(outcome, Failure):
            status = status.model_copy(update={"root_cause": outcome.cause})
        if leftovers:
            return (*self.view.patch(self.view.with_verdicts(status, verdicts)), *self.view.stop_pods())
        return self._end(outcome, status, verdicts)

    def _end(self, outcome: Success | Failure, status: JobStatus, verdicts: Verdicts) -> Plan:
        if isinstance(outcome, Success):
            reason = Reason.TRAINING_SUCCEEDED
            verdicts = replace(verdicts, complete=Assertion("True", reason, outcome.message))
        else:
            reason = Reason.REPLICA_FAILED
            verdicts = replace(verdicts, failed=Assertion("True", reason, outcome.message))
        status = status.model_copy(update={"completion_time": format_time(self.view.now)})
        return (
            PatchStatus(self.view.with_verdicts(status, verdicts)),
            Emit("Normal" if isinstance(outcome, Success) else "Warning", reason, outcome.message),
        )
