"""An observed job with its pods told apart, and the one way to write its status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dtj.api import names
from dtj.api.job import Job
from dtj.api.names import Condition, Reason
from dtj.api.spec import CleanPodPolicy
from dtj.api.status import JobStatus
from dtj.core.actions import Action, DeletePod, DeleteService, Emit, PatchStatus, Plan, RequeueAfter
from dtj.core.observed import Observed, Pod
from dtj.core.pod_failure import ended_at
from dtj.core.status import (
    DesiredCondition,
    DesiredConditions,
    conditions,
    differs_only_in_counts,
    differs_only_in_words,
    state,
)
from dtj.core.validity import Problem

COUNT_UPDATE_INTERVAL = timedelta(seconds=10)
"""Least time between two status writes that change nothing but numbers of pods.

A start of many pods would else cost a write for each of them.
"""

WORDS_UPDATE_INTERVAL = timedelta(seconds=60)
"""Least time between two status writes that change nothing but messages.

The scheduler's and the kubelet's words may change at every attempt, for as long as a pod cannot start.
"""


SIDECAR_SECONDS = 5.0
"""How long ordinary sidecars may go on after the main container, before their pod is deleted."""


def writes(actions: tuple[Action, ...]) -> bool:
    """Whether the status is written now, rather than later or not at all."""
    return any(isinstance(action, PatchStatus) for action in actions)


@dataclass(frozen=True, slots=True)
class View:
    """An observation with its pods told apart: those of our replicas, by owner UID, and foreign_pods."""

    observed: Observed
    now: datetime
    own: tuple[Pod, ...]
    foreign_pods: tuple[Pod, ...]

    @classmethod
    def of(cls, observed: Observed, now: datetime) -> View:
        own = tuple(pod for pod in observed.pods if observed.job.owns(pod) and pod.role != names.TENSORBOARD)
        foreign_pods = tuple(pod for pod in observed.pods if not observed.job.owns(pod))
        return cls(observed=observed, now=now, own=own, foreign_pods=foreign_pods)

    @property
    def job(self) -> Job:
        return self.observed.job

    def to_stop(self) -> tuple[Pod, ...]:
        """Our pods that the clean-up policy wants gone and that are not gone yet.

        Under any policy it wants those gone that nothing but their sidecars keep running: they do no work, and would
        hold what they hold for ever.
        """
        spec = self.job.spec
        policy = spec.run_policy.clean_pod_policy if spec is not None else CleanPodPolicy.NONE
        if policy is CleanPodPolicy.ALL:
            return self.own
        running = policy is CleanPodPolicy.RUNNING
        return tuple(pod for pod in self.own if (pod.sidecars if pod.ended else running))

    def stop_pods(self) -> Plan:
        """Delete what must stop; what is already on its way out needs no second call."""
        stopped = (DeletePod(pod.name, pod.uid) for pod in self.to_stop() if pod.stopped and not pod.terminating)
        return (*stopped, *self.stop(self.to_stop()))

    def stop(self, pods: Iterable[Pod]) -> Plan:
        """Delete those of ``pods`` that run; what is already on its way out needs no second call.

        Deleting a pod takes its log away. So where its main container has ended, the kubelet is left to end the
        sidecars that Kubernetes knows, and others have some seconds to end by themselves.
        """
        deletions: list[DeletePod] = []
        waits: list[float] = []
        for pod in pods:
            if pod.terminating or pod.stopped or (pod.ended and not pod.sidecars):
                continue
            since = (self.now - ended_at(pod)).total_seconds() if pod.ended else SIDECAR_SECONDS
            if 0 <= since < SIDECAR_SECONDS:
                waits.append(SIDECAR_SECONDS - since)
            else:  # also where a clock that is ahead says that it is yet to end
                deletions.append(DeletePod(pod.name, pod.uid))
        return (*deletions, *((RequeueAfter(min(waits)),) if waits else ()))

    def drop_service(self) -> tuple[DeleteService, ...]:
        """Delete the job's Service, if it is there and ours."""
        service = self.observed.service
        if service is None or not self.job.owns(service):
            return ()
        return (DeleteService(service.name, service.uid),)

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

    def with_conditions(self, base: JobStatus, desired: DesiredConditions) -> JobStatus:
        """``base`` with conditions and summary as ``desired`` say; what they leave open is as it was."""
        desired = self._carried_on(desired)
        if self.observed.obstacle and desired.pods_ready.status != "True":
            told = DesiredCondition("False", Reason.API_CALL_FAILED, self.observed.obstacle)
            desired = replace(desired, pods_ready=told)
        before = self.job.status
        word, reason = state(
            desired,
            started=base.start_time is not None,
            before=before.state if before.attempt == base.attempt else "",
        )
        return base.model_copy(
            update={
                "observed_generation": self.job.generation,
                "state": str(word),
                "reason": str(reason),
                "conditions": conditions(
                    self.job.status.conditions, desired, generation=self.job.generation, now=self.now
                ),
            }
        )

    def _carried_on(self, desired: DesiredConditions) -> DesiredConditions:
        """A job that was suspended once is a resumed one, and one that restarts does so until it is ready or ends."""
        suspended = self.job.status.condition(Condition.SUSPENDED)
        if suspended is not None and desired.suspended.status != "True":
            was = suspended.status == "True" or suspended.reason == Reason.RESUMED
            desired = replace(desired, suspended=DesiredCondition("False", Reason.RESUMED)) if was else desired
        restarting = self.job.status.condition(Condition.RESTARTING)
        over = "True" in (
            desired.pods_ready.status,
            desired.suspended.status,
            desired.success_criteria_met.status,
            desired.failure_target.status,
        )
        if restarting is not None and restarting.status == "True" and desired.restarting.status != "True" and not over:
            going_on = DesiredCondition("True", Reason(restarting.reason), restarting.message)
            desired = replace(desired, restarting=going_on)
        return desired

    def report_invalid(self, found: tuple[Problem, ...]) -> Plan:
        """Say what is wrong; nothing is created, and what runs already is left alone."""
        reason = found[0].reason if found else Reason.INVALID_SPEC
        message = "; ".join(problem.message for problem in found) or "spec: cannot be read"
        invalid = DesiredCondition("True", reason, message)
        status = self.with_conditions(
            self.job.status,
            DesiredConditions(
                pods_ready=DesiredCondition("False", Reason.PENDING, "the job is not valid"), invalid=invalid
            ),
        )
        changed = self.patch(status)
        return (*changed, Emit("Warning", reason, message)) if writes(changed) else changed
