"""What is seen of a job whose manifest can be read: which pods count, what is missing, what the status should say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Reason
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus
from dtj.core import blockers, manifests
from dtj.core.observed import Child, Pod, TemplateVerdict
from dtj.core.outcome import completed, replica_of
from dtj.core.replicas import Replica, incarnation, pod_name, replicas, worker_selector
from dtj.core.status import (
    Assertion,
    is_ready,
    ready_text,
    recorded_completions,
    replica_statuses,
)
from dtj.core.view import View


@dataclass(frozen=True)
class Picture:
    """One job in one pass. What many questions need is found out once: jobs have hundreds of pods."""

    view: View
    spec: JobSpec

    @property
    def job(self) -> Job:
        """The job."""
        return self.view.job

    @property
    def attempt(self) -> int:
        """The attempt that runs, or is about to; from 1."""
        return max(self.job.status.attempt, 1)

    def done(self) -> frozenset[Replica]:
        """The replicas that have completed in this attempt."""
        return completed(self.current(), recorded_completions(self.job.status))

    def current(self) -> tuple[Pod, ...]:
        """Our pods of this attempt, of each replica the latest."""
        return self._current

    @cached_property
    def _current(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.view.own if self.is_current(pod))

    @cached_property
    def _names(self) -> dict[Replica, str]:
        """The names of all replicas' latest pods, in TF_CONFIG's order."""
        return {replica: self._new_name(replica) for replica in replicas(self.spec)}

    def is_current(self, pod: Pod) -> bool:
        """Whether a pod is the latest of its replica."""
        replica = replica_of(pod)
        return replica is not None and pod.name == self.name_of(replica)

    def name_of(self, replica: Replica) -> str:
        """The name of a replica's latest pod, whether or not it is there."""
        return self._names.get(replica) or self._new_name(replica)

    def _new_name(self, replica: Replica) -> str:
        return pod_name(self.job.name, replica, incarnation(self.job.status, replica))

    def missing(self, done: frozenset[Replica]) -> list[Replica]:
        """Replicas that should run and have no pod, in TF_CONFIG's order."""
        present = {pod.name for pod in self.view.own}
        return [replica for replica, name in self._names.items() if replica not in done and name not in present]

    def alone(self, replica: Replica) -> bool:
        """Whether a replica was replaced alone, in this attempt or before."""
        return incarnation(self.job.status, replica) >= self.attempt

    def claim_in_use(self) -> Child | None:
        """The claim that has the name of ours, where the job wants one."""
        wanted = manifests.claim(self.job, self.spec)
        return self.view.observed.claim if wanted is not None else None

    @property
    def verdict(self) -> TemplateVerdict | None:
        """What the API server said of this generation's pods."""
        verdict = self.view.observed.verdict
        return verdict if verdict is not None and verdict.generation == self.job.generation else None

    def blocked(self) -> tuple[Pod, ...]:
        """Our pods that something keeps from starting, in the order of their replicas."""
        by_name = {pod.name: pod for pod in self.current()}
        ours = (by_name.get(name) for name in self._names.values())
        return blockers.blocked(pod for pod in ours if pod is not None)

    def seconds_until(self, moment: datetime) -> float:
        """Seconds from now on; 0 where it has passed."""
        return max(0.0, (moment - self.view.now).total_seconds())

    def readiness(self, done: frozenset[Replica], status: JobStatus) -> Assertion:
        """What the condition PodsReady should say; ``status`` counts the pods."""
        refusal = self.view.observed.refusal
        if refusal is not None:
            return Assertion("False", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
        up = {pod.name for pod in self.current() if is_ready(pod)}
        if all(replica in done or name in up for replica, name in self._names.items()):
            return Assertion("True", Reason.ALL_PODS_READY)
        ready = f"{status.ready.replace('/', ' of ')} pods are ready"
        pod = blockers.named(self.blocked(), self.view.now)
        if pod is not None and pod.blocker is not None:
            return Assertion("False", pod.blocker.reason, f"{ready}; {pod.name}: {pod.blocker.message}")
        return Assertion("False", Reason.WAITING_FOR_PODS, ready)

    def pods(self, wanted: Iterable[Replica], *, restricted: bool = False) -> tuple[JsonObject, ...]:
        """Their manifests; made to fit the Pod Security Standard "restricted" where the namespace was found to
        enforce it, too."""
        platform = self.view.observed.platform
        if restricted or (self.verdict is not None and self.verdict.restricted):
            platform = replace(platform, restricted=True)
        return manifests.pods(self.job, self.spec, wanted, platform=platform)

    def status(self, *, starting: frozenset[Replica]) -> JobStatus:
        """The stored status with pods counted anew; ``starting`` are those that this pass creates."""
        before = self.job.status
        counts = replica_statuses(
            self.spec, self.current(), done=self.done(), starting=starting, recorded=before.replica_statuses
        )
        return before.model_copy(
            update={
                "replica_statuses": counts,
                "ready": ready_text(self.spec, counts),
                "selector": worker_selector(self.job.name),
            }
        )
