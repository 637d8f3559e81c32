"""The planner: from what is observed of a job to what is to be done about it.

Pure and level-triggered. It remembers nothing: whatever must survive is in the job's status, and is recorded
there before anything depends on it. A job whose world does not change gets an empty plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.api.spec import CleanPodPolicy, JobSpec
from dtj.api.status import JobStatus, RootCause
from dtj.core import manifests
from dtj.core.observed import Child, Observed, Pod
from dtj.core.outcome import Failure, Success, completed, decide
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
    RequeueAfter,
)
from dtj.core.replicas import Replica, pod_name, replicas, worker_selector
from dtj.core.status import (
    Assertion,
    Verdicts,
    conditions,
    differs_only_in_counts,
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

COLLISION_RETRY_SECONDS = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

COLLISION_PATIENCE_SECONDS = 10.0
"""For how long a new job does not complain of names that are taken."""


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
            due = written + COUNT_UPDATE_INTERVAL
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
        outcome = decide(self.spec, self.view.own, done)
        if outcome is not None:
            return self._finish(outcome)
        for obstacle in (self._collision, self._check_template):
            blocked = obstacle()
            if blocked is not None:
                return blocked
        return self._run(done)

    def _done(self) -> frozenset[Replica]:
        return completed(self.view.own, recorded_completions(self.job.status))

    def _recorded_message(self, kind: Condition) -> str:
        condition = self.job.status.condition(kind)
        return condition.message if condition is not None else ""

    # -- running ---------------------------------------------------------------------------------------------

    def _collision(self) -> Plan | None:
        """Objects with our names that are not ours: said aloud, and nothing is created around them."""
        ours = {pod_name(self.job.name, replica) for replica in replicas(self.spec)}
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
        """Before the first pod: does the API server take one of each role? Its own words go into the status."""
        if self.view.own or self.job.status.start_time is not None:
            return None
        verdict = self.view.observed.verdict
        if verdict is None or verdict.generation != self.job.generation:
            first_of_role = (Replica(role, 0) for role in self.spec.roles())
            return (CheckPods(self.job.generation, self._pods(first_of_role)),)
        if not verdict.errors:
            return None
        return self.view.report_invalid(tuple(Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors))

    def _run(self, done: frozenset[Replica]) -> Plan:
        present = {pod.name for pod in self.view.own}
        missing = [
            replica
            for replica in replicas(self.spec)
            if replica not in done and pod_name(self.job.name, replica) not in present
        ]
        creations = (*self._shared_objects(), *map(CreatePod, self._pods(missing)))
        status = self._status(starting=frozenset(missing))
        starting = status.start_time is None
        if starting:
            status = status.model_copy(update={"start_time": format_time(self.view.now), "attempt": self.attempt})
        changed = self.view.patch(self.view.with_verdicts(status, Verdicts(pods_ready=self._readiness(done, status))))
        return (*creations, *changed, *self._events(len(missing), starting=starting, changed=_writes(changed)))

    def _events(self, created: int, *, starting: bool, changed: bool) -> tuple[Emit, ...]:
        refusal = self.view.observed.refusal
        if refusal is not None:
            message = f"{refusal.name}: {refusal.message}"
            return (Emit("Warning", Reason.POD_CREATION_FAILED, message),) if changed else ()
        if not created:
            return ()
        roles = ", ".join(f"{self.spec.replicas(role)} {role}" for role in self.spec.roles())
        return (
            Emit("Normal", Reason.PODS_CREATED, f"created {created} pods ({roles})")
            if starting
            else Emit("Warning", Reason.REPLICA_LOST, f"created {created} pods anew that were gone"),
        )

    def _shared_objects(self) -> tuple[Action, ...]:
        """Claim and Service, before the pods that need them."""
        claim = manifests.claim(self.job, self.spec)
        return (
            *((CreateClaim(claim),) if claim is not None and self.view.observed.claim is None else ()),
            *(
                (ApplyService(manifests.service(self.job, self.spec, attempt=self.attempt)),)
                if self.view.observed.service is None
                else ()
            ),
        )

    def _readiness(self, done: frozenset[Replica], status: JobStatus) -> Assertion:
        refusal = self.view.observed.refusal
        if refusal is not None:
            return Assertion("False", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
        up = {pod.name for pod in self.view.own if is_ready(pod)}
        if all(r in done or pod_name(self.job.name, r) in up for r in replicas(self.spec)):
            return Assertion("True", Reason.ALL_PODS_READY)
        return Assertion("False", Reason.WAITING_FOR_PODS, f"{status.ready} pods are ready")

    def _pods(self, wanted: Iterable[Replica]) -> tuple[JsonObject, ...]:
        return manifests.pods(self.job, self.spec, wanted, platform=self.view.observed.platform, attempt=self.attempt)

    def _status(self, *, starting: frozenset[Replica]) -> JobStatus:
        counts = replica_statuses(self.spec, self.view.own, done=self._done(), starting=starting)
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
