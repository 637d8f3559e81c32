"""What is seen of a job whose manifest can be read: which pods count, what is missing, what the status should say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang, JobSpec
from dtj.api.status import ExportedModel, JobStatus, Progress
from dtj.core import blockers, gangs, manifests
from dtj.core.actions import CreateGang, CreatePod, DeleteGang
from dtj.core.gangs import Group
from dtj.core.observed import Child, GangApi, GangObject, Phase, Pod, SeenProgress, TemplateVerdict
from dtj.core.outcome import completed, replica_of
from dtj.core.platform import Platform
from dtj.core.replicas import Replica, deciding_replica, incarnation, pod_name, replicas, worker_selector
from dtj.core.status import (
    DesiredCondition,
    format_time,
    is_ready,
    ready_text,
    recorded_completions,
    recorded_replacements,
    replica_statuses,
)
from dtj.core.stragglers import Straggler
from dtj.core.validity import Problem
from dtj.core.view import View

REJECTION_TTL: Final = timedelta(seconds=60)
"""For how long a template stays rejected: it may have been an admission policy that is mended by now."""

_COMPLETED: Final = "done"
"""How far a training is that has completed: it has ended since it was asked last, and some stop early."""

_WAITING: Final = "waiting for pods"
_NO_REPORT: Final = "no report yet"


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
        """Whether a replica was replaced alone in this attempt, after its pod had been scheduled.

        An earlier attempt does not matter: all pods of this one are new, and a scheduler waits for each of them.
        """
        return replica in self._replaced

    @cached_property
    def _replaced(self) -> frozenset[Replica]:
        return recorded_replacements(self.job.status)

    @property
    def was_ready(self) -> bool:
        """Whether all pods of this attempt were ready at the same time, once."""
        return self.job.status.ready_attempt == self.attempt or self.job.status.is_true(Condition.PODS_READY)

    @property
    def has_started(self) -> bool:
        """Whether the scheduler has placed pods of this attempt: of a gang it places none before it places enough."""
        return self.was_ready or bool(self.done()) or any(pod.node for pod in self.current())

    def had_started(self, pod: Pod) -> bool:
        """Whether a pod that is lost had been placed; of one that is gone without a trace only the others can tell."""
        return bool(pod.node) or pod.phase is not Phase.PENDING or self.has_started

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
        return None if verdict.errors and self.view.now >= verdict.at + REJECTION_TTL else verdict

    def blocked(self) -> tuple[Pod, ...]:
        """Our pods that something keeps from starting, in the order of their replicas."""
        by_name = {pod.name: pod for pod in self.current()}
        ours = (by_name.get(name) for name in self._names.values())
        return blockers.blocked(pod for pod in ours if pod is not None)

    def seconds_until(self, moment: datetime) -> float:
        """Seconds from now on; 0 where it has passed."""
        return max(0.0, (moment - self.view.now).total_seconds())

    def readiness(self, done: frozenset[Replica], status: JobStatus) -> DesiredCondition:
        """What the condition PodsReady should say; ``status`` counts the pods."""
        refusal = self.view.observed.refusal
        if refusal is not None:
            return DesiredCondition("False", Reason.POD_CREATION_FAILED, f"{refusal.name}: {refusal.message}")
        if self._all_are_ready(done):
            return DesiredCondition("True", Reason.ALL_PODS_READY)
        ready = f"{status.ready.replace('/', ' of ')} pods are ready"
        pod = blockers.named(self.blocked(), self.view.now)
        if pod is not None and pod.blocker is not None:
            return DesiredCondition("False", pod.blocker.reason, f"{ready}; {pod.name}: {pod.blocker.message}")
        return DesiredCondition("False", Reason.WAITING_FOR_PODS, ready)

    def _all_are_ready(self, done: frozenset[Replica]) -> bool:
        up = {pod.name for pod in self.current() if is_ready(pod)}
        return all(replica in done or name in up for replica, name in self._names.items())

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
        return found if found is not None and self.job.owns(found) else None

    def new_gang(self, api: GangApi) -> CreateGang:
        """What tells ``api`` of this job."""
        priority = self.verdict.priority if self.verdict is not None else None
        return CreateGang(
            api, self._group(api).manifest(manifests.gang_metadata(self.job), self.first_pods(), priority=priority)
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

    def creations(self, wanted: Iterable[Replica]) -> Iterator[CreatePod]:
        """What creates their pods."""
        render = self._renderer(self.platform)
        return (CreatePod(self._new_name(replica), partial(render, replica)) for replica in wanted)

    def first_pods(self, *, restricted: bool = False) -> tuple[JsonObject, ...]:
        """The manifest of the first pod of each role, in TF_CONFIG's order; made to fit the Pod Security Standard
        "restricted" where the namespace was found to enforce it, too."""
        render = self._renderer(replace(self.platform, restricted=True) if restricted else self.platform)
        return tuple(render(Replica(role, 0)) for role in self.spec.roles())

    def _renderer(self, platform: Platform) -> Callable[[Replica], JsonObject]:
        """What makes a replica's manifest, its place in the gang included."""
        pods = manifests.PodRenderer(self.job, self.spec, platform)
        group = self._group(self.gang) if self.gang is not None else None

        def render(replica: Replica) -> JsonObject:
            pod = pods.render(replica)
            if group is not None:
                self._into_gang(group, replica, pod)
            return pod

        return render

    def _group(self, api: GangApi) -> Group:
        return Group(api, self.job, self.spec, self.attempt)

    def _into_gang(self, group: Group, replica: Replica, pod: JsonObject) -> None:
        """One that comes back alone joins nobody: the gang has started, and some of its members may have completed."""
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
                "progress": self.progress,
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
            if pod.name == name and pod.succeeded and pod.termination is not None:
                return ExportedModel.from_message(pod.termination.message) or self.job.status.export
        return self.job.status.export

    @cached_property
    def progress(self) -> Progress | None:
        """What is known of the training; that its pod has completed says more than what it published last."""
        said = self._newest_word()
        if deciding_replica(self.spec) in self.done():
            return said.model_copy(update={"text": _COMPLETED}) if said is not None else Progress(text=_COMPLETED)
        return said if said is not None and said.reported else Progress(text=self._before_the_first_word())

    def _before_the_first_word(self) -> str:
        """What there is to say of a training that has not said anything."""
        return _NO_REPORT if self._all_are_ready(self.done()) else _WAITING

    @cached_property
    def _current_uids(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.current())

    def is_current_uid(self, uid: str) -> bool:
        """Whether this is the UID of one of the pods that count."""
        return uid in self._current_uids

    @property
    def latest_answer(self) -> SeenProgress | None:
        """What one of this attempt's pods said last to this process."""
        seen = self.view.observed.progress
        return seen if seen is not None and self.is_current_uid(seen.pod_uid) else None

    def _newest_word(self) -> Progress | None:
        """The newest word of this attempt's pods; ``updated_at`` moves only when the training does."""
        before, seen = self.job.status.progress, self.latest_answer
        if seen is None:
            return before
        at = format_time(seen.at) if before is None or seen.progress.advanced(before) else before.updated_at
        slow = tuple(straggler.hostname for straggler in self.view.observed.stragglers)
        return seen.progress.model_copy(
            update={"text": seen.progress.in_words(), "stragglers": slow, "updated_at": at or format_time(seen.at)}
        )

    @property
    def new_stragglers(self) -> tuple[Straggler, ...]:
        """The slow replicas of which the status does not tell yet, where it is about to."""
        before, now = self.job.status.progress, self.progress
        known = before.stragglers if before is not None else ()
        told = now.stragglers if now is not None else ()
        return tuple(s for s in self.view.observed.stragglers if s.hostname in told and s.hostname not in known)
