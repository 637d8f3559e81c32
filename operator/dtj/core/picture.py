"""What is seen of a job whose manifest can be read: which pods count, what is missing, what the status should say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang, JobSpec
from dtj.api.status import ExportedModel, JobStatus, Progress
from dtj.core import blockers, gangs, manifests
from dtj.core.gangs import Group
from dtj.core.observed import Child, GangApi, GangObject, Phase, Pod, TemplateVerdict
from dtj.core.outcome import completed, replica_of
from dtj.core.plan import CreateGang, DeleteGang
from dtj.core.platform import Platform
from dtj.core.replicas import Replica, deciding_replica, incarnation, pod_name, replicas, worker_selector
from dtj.core.status import (
    Assertion,
    format_time,
    is_ready,
    ready_text,
    recorded_completions,
    replica_statuses,
)
from dtj.core.stragglers import Straggler
from dtj.core.validity import Problem
from dtj.core.view import View

REJECTION_LIFE: Final = timedelta(seconds=60)
"""For how long a template stays rejected: it may have been an admission policy that is mended by now."""

_COMPLETED: Final = "done"
"""How far a training is that has completed: it has ended since it was asked last, and some stop early."""


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
        """What the API server said of this generation's pods, and would say still."""
        verdict = self.view.observed.verdict
        if verdict is None or verdict.generation != self.job.generation:
            return None
        return None if verdict.errors and self.view.now >= verdict.at + REJECTION_LIFE else verdict

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

    @cached_property
    def gang_choice(self) -> GangApi | Problem | None:
        """Who is told which pods belong together, or why nobody can be; None where nobody is, or who could be is not
        known. What a run began with, it goes on with."""
        found, scheduling = self.view.observed.gangs, self.spec.run_policy.scheduling
        if found is None or scheduling is None:
            return None
        if self.job.status.start_time is not None:
            return gangs.served(self.job.status.gang, found)
        return gangs.choose(scheduling, found)

    @property
    def gang(self) -> GangApi | None:
        """Who is told which pods belong together; None where nobody is."""
        return self.gang_choice if isinstance(self.gang_choice, GangApi) else None

    @property
    def gang_object(self) -> GangObject | None:
        """Our PodGroup or Workload, where it is there."""
        found = self.view.observed.gang
        return found if found is not None and found.owner_uid == self.job.uid else None

    def new_gang(self, api: GangApi) -> CreateGang:
        """What tells ``api`` of this job."""
        first_of_role = self.pods([Replica(role, 0) for role in self.spec.roles()])
        priority = self.verdict.priority if self.verdict is not None else None
        return CreateGang(
            api, self._group(api).manifest(manifests.gang_metadata(self.job), first_of_role, priority=priority)
        )

    def drop_gang(self) -> tuple[DeleteGang, ...]:
        """Nobody need hold anything for this job any more."""
        found = self.gang_object
        if found is None or found.terminating:
            return ()
        return (DeleteGang(found.api, found.name, found.uid),)

    @property
    def platform(self) -> Platform:
        """What the pods are made for: that of all jobs, and what this namespace was found to enforce."""
        platform = self.view.observed.platform
        enforced = self.verdict is not None and self.verdict.restricted
        return replace(platform, restricted=True) if enforced else platform

    def pods(self, wanted: Iterable[Replica], *, restricted: bool = False) -> tuple[JsonObject, ...]:
        """Their manifests; made to fit the Pod Security Standard "restricted" where the namespace was found to
        enforce it, too."""
        platform = replace(self.platform, restricted=True) if restricted else self.platform
        wanted = tuple(wanted)
        made = manifests.pods(self.job, self.spec, wanted, platform=platform)
        group = self._group(self.gang) if self.gang is not None else None
        if group is not None:
            for replica, pod in zip(wanted, made, strict=True):
                self._into_gang(group, replica, pod)
        return made

    def _group(self, api: GangApi) -> Group:
        return Group(api, self.job, self.spec, self.attempt)

    def _into_gang(self, group: Group, replica: Replica, pod: JsonObject) -> None:
        """One that comes back alone joins nobody: the others run, and some of them may have completed."""
        group.prepare(pod)
        if not self.alone(replica):
            group.join(pod)
        if group.api.gang is Gang.KUEUE and self.gang_object is not None:
            gangs.place(pod, replica.role, self.gang_object, self.view.observed.flavors)

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
                "progress": self._progress,
                "export": self._export(),
            }
        )

    def _export(self) -> ExportedModel | None:
        """What the replica that exports said as its last words; what was said before, where it says nothing.

        They are looked at as soon as they are there: the others may go on for long, and its pod may be gone by then.
        """
        exporter = deciding_replica(self.spec)
        name = self.name_of(exporter) if exporter is not None else ""
        for pod in self.current():
            if pod.name == name and pod.phase is Phase.SUCCEEDED and pod.termination is not None:
                return ExportedModel.from_message(pod.termination.message) or self.job.status.export
        return self.job.status.export

    @cached_property
    def _progress(self) -> Progress | None:
        """What is known of the training; that its pod has completed says more than what it published last."""
        said = self._newest_word()
        over = deciding_replica(self.spec) in self.done()
        return said.model_copy(update={"text": _COMPLETED}) if said is not None and over else said

    def _newest_word(self) -> Progress | None:
        """The newest word of this attempt's pods; ``updated_at`` moves only when the training does."""
        before, seen = self.job.status.progress, self.view.observed.progress
        if seen is None or seen.pod_uid not in {pod.uid for pod in self.current()}:
            return before
        at = format_time(seen.at) if before is None or seen.progress.advanced(before) else before.updated_at
        slow = tuple(straggler.hostname for straggler in self.view.observed.stragglers)
        return seen.progress.model_copy(update={"text": seen.progress.in_words(), "stragglers": slow, "updated_at": at})

    @property
    def new_stragglers(self) -> tuple[Straggler, ...]:
        """The slow replicas of which the status does not tell yet, where it is about to."""
        before, now = self.job.status.progress, self._progress
        known = before.stragglers if before is not None else ()
        told = now.stragglers if now is not None else ()
        return tuple(s for s in self.view.observed.stragglers if s.hostname in told and s.hostname not in known)

    def stalled(self) -> Assertion:
        """What the condition Stalled should say: whether a job whose pods are all ready has stood still too long."""
        due = self.stall_due()
        if due is None or self.view.now < due:
            return Assertion("False", Reason.NOT_STALLED)
        progress = self._progress
        at = f"step {progress.step} since {progress.updated_at}" if progress is not None else "no step at all"
        seconds = self.spec.run_policy.stall_timeout_seconds
        return Assertion(
            "True",
            Reason.STALLED,
            f"all pods are ready, but the training has not advanced for {seconds} s, which is "
            f"runPolicy.stallTimeoutSeconds: {at}",
        )

    def stall_due(self) -> datetime | None:
        """When the job counts as stalled; None where it cannot."""
        seconds = self.spec.run_policy.stall_timeout_seconds
        ready = self.job.status.condition(Condition.PODS_READY)
        if seconds is None or ready is None or ready.status != "True":
            return None
        progress = self._progress
        moments = (parse_time(ready.last_transition_time), parse_time(progress.updated_at) if progress else None)
        return max((moment for moment in moments if moment is not None), default=self.view.now) + timedelta(
            seconds=seconds
        )
