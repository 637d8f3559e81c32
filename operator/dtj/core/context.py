"""What a pass needs to know of one job: the facts that the policies decide by, each found out once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from dtj.api import kueue, names
from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.spec import Gang, JobSpec, Role
from dtj.core.admission import tfjobs
from dtj.core.admission.group import Group
from dtj.core.admission.partial_admission import as_admitted
from dtj.core.admission.scheduler_choice import choose, kept
from dtj.core.admission.schedulers import disrupted_at
from dtj.core.admission.workloads import inactive_queue
from dtj.core.manifests.tf_config import Cluster
from dtj.core.membership import World, told_of_members, world_of
from dtj.core.observed import GangApi, GangObject, Observed, Pod, SeenProgress, TemplateVerdict
from dtj.core.platform import Platform
from dtj.core.pod_failure import PodEnd, PodFailureClass, ends_of, was_taken_away, with_restart_by_kubelet
from dtj.core.pod_state import replica_of
from dtj.core.replicas import (
    TRAINING_ROLES,
    Replica,
    deciding_replica,
    incarnation,
    pod_name,
    possible_members,
    replicas,
    roles_that_may_fail,
    training_replicas,
)
from dtj.core.status import is_over, is_ready, recorded_completions, recorded_replacements, true_since
from dtj.core.validity import Problem, problems

REJECTION_TTL: Final = timedelta(seconds=60)
"""For how long a template stays rejected: the admission policy that refused it may have been fixed since."""


@dataclass(frozen=True)
class JobContext:
    """One job in one pass. Jobs have thousands of pods: what several policies need, or one needs of each pod, is
    computed once, on first use.

    ``own`` are the pods of the job's replicas, by owner UID; ``foreign_pods`` have its labels or names, but another
    owner.
    """

    observed: Observed
    now: datetime
    asked: Job
    """The job with the number of workers that it asks for; see :attr:`job`."""

    own: tuple[Pod, ...]
    foreign_pods: tuple[Pod, ...]
    forgotten_queue: str = ""
    """The queue of the job's Workload if neither the job nor its status names one: the status was lost, in part or
    whole. The job stays in it."""

    @classmethod
    def of(cls, observed: Observed, now: datetime) -> JobContext:
        """The context of a pass at ``now``."""
        job, forgotten = tfjobs.as_configured(observed.job, observed.platform), _forgotten_queue(observed)
        queue = job.status.queue or forgotten
        asked = replace(job, spec=kueue.in_queue(job.spec, queue)) if job.spec is not None else job
        observed = replace(observed, job=as_admitted(asked, observed.gang))
        ready = true_since(job.status, Condition.PODS_READY)
        own = tuple(
            with_restart_by_kubelet(pod, ready)
            for pod in observed.pods
            if observed.job.owns(pod) and pod.role != names.TENSORBOARD
        )
        foreign_pods = tuple(pod for pod in observed.pods if not observed.job.owns(pod))
        return cls(
            observed=observed, now=now, asked=asked, own=own, foreign_pods=foreign_pods, forgotten_queue=forgotten
        )

    @classmethod
    def seen(cls, job: Job, pods: Iterable[Pod], now: datetime) -> JobContext:
        """What a client can tell of a job from it and its pods alone."""
        return cls.of(Observed(job=job, platform=Platform(), pods=tuple(pods)), now)

    @property
    def job(self) -> Job:
        """The job as it is stored; its spec names the queue that was chosen for it, and has as many workers as Kueue
        has admitted."""
        return self.observed.job

    @property
    def spec(self) -> JobSpec:
        """The spec of the job. Ask only for jobs whose manifest can be read."""
        assert self.job.spec is not None
        return self.job.spec

    @property
    def withheld(self) -> int:
        """How many of the workers that the job asks for Kueue has not admitted."""
        asked = self.asked.spec
        return asked.replicas(Role.WORKER) - self.spec.replicas(Role.WORKER) if asked is not None else 0

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps the job from going on; empty if nothing does."""
        return tuple(problem for problem in self._all_problems if problem not in self.tolerated)

    @cached_property
    def tolerated(self) -> tuple[Problem, ...]:
        """What is wrong with the manifest, and changes nothing for a job that has begun. A TFJob may have begun under
        Kubeflow's operator, which runs what our rules refuse."""
        if not self.has_something_to_stop or self.job.spec is None:
            return ()
        return tuple(problem for problem in self._all_problems if problem.of_queue or self.job.form.recorded_in)

    @cached_property
    def _all_problems(self) -> tuple[Problem, ...]:
        return problems(self.job, self.observed.platform)

    @cached_property
    def cluster(self) -> Cluster:
        """The addresses of the replicas, and how they come to the pods."""
        return Cluster(self.job, self.spec, self.platform)

    @property
    def attempt(self) -> int:
        """The attempt that runs, or is about to; from 1."""
        return self.job.attempt

    @property
    def has_something_to_stop(self) -> bool:
        """Whether there is something of the job that could be stopped. A pod that has ended and is being deleted holds
        nothing, however long somebody's finalizer keeps it; but in a TFJob its name, which the next pod gets."""
        needs_names = not self.job.form.keeps_ended_pods
        held = any(needs_names or not (pod.all_containers_ended and pod.terminating) for pod in self.own)
        return held or self.job.status.start_time is not None

    @property
    def dispatched(self) -> bool:
        """Whether the job runs in another cluster, where MultiKueue makes a copy of it."""
        return kueue.is_dispatched(self.job.raw_spec)

    def seconds_until(self, moment: datetime) -> float:
        """Seconds from now on; 0 if the moment has passed."""
        return max(0.0, (moment - self.now).total_seconds())

    # -- replicas and their pods -----------------------------------------------------------------------------

    @cached_property
    def current(self) -> tuple[Pod, ...]:
        """Our pods of this attempt, of each replica the latest."""
        return tuple(pod for pod in self.own if self.is_current(pod))

    @cached_property
    def _current_by_replica(self) -> dict[Replica | None, Pod]:
        return {replica_of(pod): pod for pod in self.current}

    @cached_property
    def current_uids(self) -> frozenset[str]:
        """The UIDs of the current pods."""
        return frozenset(pod.uid for pod in self.current)

    @cached_property
    def _own_by_replica(self) -> dict[Replica | None, list[Pod]]:
        found: defaultdict[Replica | None, list[Pod]] = defaultdict(list)
        for pod in self.own:
            found[replica_of(pod)].append(pod)
        return found

    @cached_property
    def holding(self) -> tuple[Pod, ...]:
        """Our pods that hold resources, of a job of which Kueue counts them by the status."""
        return tuple(pod for pod in self.own if not pod.all_containers_ended) if self.job.form.kueue_integration else ()

    @cached_property
    def pod_ends(self) -> tuple[PodEnd, ...]:
        """The current pods that have ended or are being taken away, and why; the earliest first."""
        group = self.gang_object
        disrupted = disrupted_at(group) if group is not None else None
        if disrupted is None:
            return ends_of(self.current)
        return ends_of(
            replace(pod, disrupted=True) if pod.created_at is not None and pod.created_at <= disrupted else pod
            for pod in self.current
        )

    @cached_property
    def completed(self) -> frozenset[Replica]:
        """The replicas that have completed in this attempt. Recorded ones stay so even if their pods are gone."""
        now_done = (replica_of(e.pod) for e in self.pod_ends if e.failure_class is PodFailureClass.COMPLETED)
        recorded = recorded_completions(self.job.status)
        return recorded | {replica for replica in now_done if replica is not None}

    @cached_property
    def completed_peer(self) -> Replica | None:
        """The first, by name, of the replicas that train and have completed; None if none has."""
        done = (replica for replica in self.completed if replica.role in TRAINING_ROLES)
        return min(done, key=lambda replica: replica.hostname, default=None)

    @cached_property
    def pod_names(self) -> dict[Replica, str]:
        """The names of all replicas' latest pods, in TF_CONFIG's order."""
        return {replica: self._new_name(replica) for replica in replicas(self.spec)}

    def is_current(self, pod: Pod) -> bool:
        """Whether a pod is the latest of its replica, which the job still wants."""
        replica = replica_of(pod)
        return replica is not None and pod.name == self.pod_names.get(replica)

    @cached_property
    def world(self) -> World | None:
        """The replicas that train together in a job whose members can change while its pods live."""
        return world_of(self.job, self.spec, (pod.world for pod in told_of_members(self.job, self.own)))

    @property
    def members(self) -> frozenset[Replica] | None:
        """The same; None if all replicas train."""
        return self.world.members if self.world is not None else None

    @property
    def may_fail(self) -> tuple[Role, ...]:
        """The roles whose replicas may fail without an end of the job."""
        return roles_that_may_fail(self.spec, self.job.form)

    @cached_property
    def outsiders(self) -> frozenset[Replica]:
        """The replicas that could train and do not, because they are no members yet, or not any more."""
        return frozenset(possible_members(self.spec)) - self.members if self.members is not None else frozenset()

    @cached_property
    def spares(self) -> frozenset[Replica]:
        """The outsiders that are more than the job lacks: they wait for the place of a lost member."""
        lacking = len(training_replicas(self.spec)) - len(self.members or ())
        return frozenset(sorted(self.outsiders)[max(0, lacking) :])

    @cached_property
    def leader(self) -> Replica | None:
        """The replica that knows how far the training is."""
        return deciding_replica(self.spec, self.members)

    def name_of(self, replica: Replica) -> str:
        """The name of a replica's latest pod, whether or not it is there."""
        return self.pod_names.get(replica) or self._new_name(replica)

    def pod_of(self, replica: Replica | None) -> Pod | None:
        """A replica's latest pod, if it is there."""
        return self._current_by_replica.get(replica)

    def pods_of(self, replica: Replica) -> Sequence[Pod]:
        """Our pods of a replica, those of earlier attempts and incarnations included."""
        return self._own_by_replica.get(replica, ())

    def _new_name(self, replica: Replica) -> str:
        return pod_name(self.job, replica, incarnation(self.job.status, replica))

    @cached_property
    def missing(self) -> tuple[Replica, ...]:
        """Replicas that should run and have no pod, in TF_CONFIG's order."""
        present = {pod.name for pod in self.own}
        return tuple(r for r, name in self.pod_names.items() if r not in self.completed and name not in present)

    @cached_property
    def replaced_alone(self) -> frozenset[Replica]:
        """The replicas that were replaced alone in this attempt, after their pods had been scheduled.

        An earlier attempt does not matter: all pods of this one are new, and a scheduler waits for each of them.
        """
        return recorded_replacements(self.job.status)

    @cached_property
    def all_ready(self) -> bool:
        """Whether each replica has completed or has a ready pod. Of an elastic job, those that do not train yet do not
        count."""
        up, outside = {pod.name for pod in self.current if is_ready(pod)}, self.outsiders
        return all(
            replica in self.completed or name in up
            for replica, name in self.pod_names.items()
            if replica not in outside
        )

    @property
    def was_ready(self) -> bool:
        """Whether all pods of this attempt were ready at the same time, once."""
        return self.job.status.ready_attempt == self.attempt or self.job.status.is_true(Condition.PODS_READY)

    @cached_property
    def any_pod_scheduled(self) -> bool:
        """Whether the scheduler has placed pods of this attempt: of a gang it places none before it places enough."""
        return self.was_ready or bool(self.completed) or any(pod.node for pod in self.current)

    @cached_property
    def any_pod_taken_away(self) -> bool:
        """Whether the infrastructure took a current pod away, or does so now."""
        return any(map(was_taken_away, self.current))

    # -- what the cluster answered ---------------------------------------------------------------------------

    @property
    def latest_answer(self) -> SeenProgress | None:
        """What a pod of this attempt last reported to this process."""
        seen = self.observed.progress
        return seen if seen is not None and seen.pod_uid in self.current_uids else None

    @property
    def template_verdict(self) -> TemplateVerdict | None:
        """What the API server answered about the pods of this generation, if that still holds."""
        verdict = self.observed.verdict
        if verdict is None or verdict.generation != self.job.generation:
            return None
        return None if verdict.errors and is_over(verdict.at, REJECTION_TTL, self.now) else verdict

    @property
    def platform(self) -> Platform:
        """What the pods are made for: the platform of all jobs, and what this namespace was found to enforce."""
        platform, verdict = self.observed.platform, self.template_verdict
        enforced = verdict is not None and verdict.restricted
        return replace(platform, restricted=True) if enforced else platform

    @cached_property
    def gang_choice(self) -> GangApi | Problem | None:
        """The gang scheduler of the job, or why there is none that it could use.

        None if the job needs none, or if the schedulers of the cluster are not known yet. A run keeps the scheduler
        that it began with, and so does a job whose manifest cannot be read. That of a TFJob which Kubeflow's operator
        began is not recorded.
        """
        found, spec, status = self.observed.gangs, self.job.spec, self.job.status
        if found is None:
            return None
        recorded = status.gang or not self.job.form.recorded_in
        if spec is None or (status.start_time is not None and recorded):
            return kept(status.gang, found)
        scheduling = spec.run_policy.scheduling
        if scheduling is None:
            return None
        return choose(scheduling, found, setting=tfjobs.setting(self.job, scheduling))

    @property
    def gang(self) -> GangApi | None:
        """The gang scheduler of the job, if there is one."""
        return self.gang_choice if isinstance(self.gang_choice, GangApi) else None

    def group(self, api: GangApi) -> Group:
        """The job as that gang scheduler gets to know it."""
        return Group(api, self.asked, self.asked.spec or self.spec)

    @cached_property
    def inactive_queue(self) -> str:
        """The ClusterQueue of Kueue that admits no job, and whose name says why; empty if the job waits for something
        else, or not at all."""
        return inactive_queue(self.gang_object) if self.gang_object is not None else ""

    @property
    def gang_object(self) -> GangObject | None:
        """Our PodGroup or Workload, if it is there."""
        found = self.observed.gang
        return found if found is not None and self.job.owns(found) else None


def _forgotten_queue(observed: Observed) -> str:
    job, workload = observed.job, observed.gang
    if job.spec is None or job.status.queue or not kueue.leaves_queue_open(job.spec):
        return ""
    kept = workload is not None and job.owns(workload) and workload.api.gang is Gang.KUEUE
    return workload.queue if kept and workload is not None else ""
