"""The cluster as one value to observe: the stores of all kinds together, and what is cached of each job in addition.

All that is cached can be lost: after a restart the API server is simply asked again. What must not be lost is in the
job's status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dtj.api.job import Job
from dtj.api.json import JsonObject, apply_merge_patch
from dtj.api.names import Reason
from dtj.core.manifests.metadata import claim_name
from dtj.core.messages import cut
from dtj.core.observed import (
    Blocker,
    Child,
    ClusterQueue,
    CreationRefusal,
    DefaultQueue,
    Flavor,
    GangObject,
    GangsFound,
    Observed,
    Pod,
    SeenProgress,
    Silence,
    Straggler,
    TemplateVerdict,
)
from dtj.core.platform import Platform
from dtj.core.policies.kueue_queue import READ_TTL
from dtj.core.policies.straggler import Reading
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.engine.child_store import C, ChildStore
from dtj.engine.expectations import Expectations
from dtj.engine.job_store import JobRecord, JobStore
from dtj.kube.errors import ApiError, Conflict, Forbidden, Invalid
from dtj.kube.gateway import CLAIMS, NETWORK_POLICIES, PODS, SERVICES, Resource
from dtj.kube.records import Key
from dtj.kube.waiting import Retry

MIN_FAILURES: Final = 3
"""How many passes in a row may fail by an error of the API server before it is reported: two seconds or so."""


MANY_CONFLICTS: Final = 10
"""How many passes in a row may fail because an object is another than we know, before it is reported: a minute or two.
News of the object is to come within moments."""


def worth_reporting(failures: int, *, permanent: bool) -> bool:
    """Whether this many failures in a row are reported to the user. ``permanent`` ones do not pass by themselves."""
    return permanent or failures >= MIN_FAILURES


@dataclass(frozen=True, slots=True)
class UnlabelledObject:
    """An object that has a name of ours but not our labels, so that no informer shows it.

    It was seen by asking for it, after creating it was answered "already exists". ``checked_at`` is the event
    loop's time.
    """

    value: Pod | Child | GangObject
    checked_at: float


@dataclass(slots=True)
class StepTimings:
    """How the steps of a job's replicas went, by host name."""

    readings: dict[str, Reading] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    """The pods that were asked."""

    in_a_row: dict[str, int] = field(default_factory=dict)
    """Readings in which a replica was slow, up to the latest."""

    stragglers: tuple[Straggler, ...] = ()
    asking: Retry = field(default_factory=Retry)
    """A round fails that brings nothing to compare."""


@dataclass(slots=True)
class JobCache:
    """Of one job, by UID."""

    verdict: TemplateVerdict | None = None
    refusal: CreationRefusal | None = None
    creating: Retry = field(default_factory=Retry)
    """After a refusal, nothing is created for this job for a while."""

    failures: int = 0
    """Passes in a row that the API server's answer to some call has ended."""

    best_effort: dict[tuple[type, str], Retry] = field(default_factory=dict)
    """What the job can do without and failed, by the action and the name of its object."""

    refused: dict[Resource, set[str]] = field(default_factory=dict)
    """The names of the objects that were refused or failed in the latest batch of calls, by their kind."""

    conflicts: int = 0
    """Passes in a row that ended because an object was another than we know."""

    obstacle: str = ""
    """That answer, where it is none that passes by itself within moments."""

    status_written_at: datetime | None = None
    told: set[Reason] = field(default_factory=set)
    """The reasons of all events that were recorded."""

    dropped: JsonObject = field(default_factory=dict)
    """What the API server did not keep of the status that was written last: its CRD is older than the operator."""

    lost_at: datetime | None = None
    """When a replica was seen to be lost for which not all are ready again."""

    progress: SeenProgress | None = None
    still_since: tuple[object, float] = (None, 0.0)
    """What the latest answers about the progress have in common, and when, by the event loop, it was first heard."""

    silence: Silence | None = None
    silent_since: float = 0.0
    """Event loop's time of the first of these questions."""

    asking: Retry = field(default_factory=Retry)
    """It fails if the pod does not say how far it is."""

    waiting: frozenset[str] = frozenset()
    """The UIDs of the pods that said that they are ready to join the others."""

    step_timings: StepTimings = field(default_factory=StepTimings)
    start_troubles: dict[str, Blocker] = field(default_factory=dict)
    """What events say of pods that do not start, by UID."""

    flavors: dict[str, Flavor] = field(default_factory=dict)
    """ResourceFlavors of Kueue that the job was given, by name, as they were when they were read."""

    workload_priorities: dict[str, int] = field(default_factory=dict)
    """The values of WorkloadPriorityClasses of Kueue that the job has named, by name, until they are written: a value
    may change until the next time."""

    default_queue: DefaultQueue | None = None
    """Whether Kueue has a default queue for the job."""

    unlabelled: dict[tuple[Resource, str], UnlabelledObject] = field(default_factory=dict)

    @property
    def obstructed(self) -> bool:
        """Whether a call for this job failed and is tried again."""
        return bool(self.failures or self.conflicts or self.creating.failures or self.best_effort or self.obstacle)

    def refused_of(self, resource: Resource) -> set[str]:
        """The names of :attr:`refused` of this kind, to be changed."""
        return self.refused.setdefault(resource, set())

    def clear_refusal(self) -> None:
        """What was to be created is there."""
        self.refusal = None
        self.creating.succeeded()

    def failed(self, error: ApiError) -> bool:
        """A call ended a pass. No answer is none to tell of, and a conflict means that we were too slow, unless it
        stays.

        Returns:
            Whether something is in the way of the job from now on.
        """
        was = self.obstacle
        if isinstance(error, Conflict):
            self.conflicts += 1
            if self.conflicts >= MANY_CONFLICTS:
                self.obstacle = cut(error.message)
            return bool(self.obstacle and not was)
        if error.status == 0:
            return False
        self.failures += 1
        if worth_reporting(self.failures, permanent=isinstance(error, Forbidden | Invalid)):
            self.obstacle = cut(error.message)
        return bool(self.obstacle and not was)

    def succeeded(self) -> bool:
        """A pass was carried out to its end. Returns whether something was in its way until now."""
        was, self.obstacle, self.failures, self.conflicts = self.obstacle, "", 0, 0
        return bool(was)

    def unlabelled_of(self, resource: Resource, kind: type[C]) -> dict[str, C]:
        """The objects of a resource that no informer shows, by name."""
        seen = ((name, found.value) for (of, name), found in self.unlabelled.items() if of == resource)
        return {name: value for name, value in seen if isinstance(value, kind)}


class JobCaches:
    """One cache for each job that is worked on, by UID."""

    def __init__(self) -> None:
        self._by_uid: dict[str, JobCache] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def begin(self, uid: str) -> None:
        """The job is worked on."""
        self._by_uid.setdefault(uid, JobCache())

    def of(self, uid: str) -> JobCache:
        """The job's cache; of one that is gone an empty cache that nobody keeps: answers may come late."""
        known = self._by_uid.get(uid)
        return known if known is not None else JobCache()

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._by_uid.pop(uid, None)


class ClusterState:
    """All that plans depend on. Reading it is free of calls to the API server."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.jobs = JobStore()
        self.pods: ChildStore[Pod] = ChildStore()
        self.services: ChildStore[Child] = ChildStore()
        self.network_policies: ChildStore[Child] = ChildStore()
        self.claims: ChildStore[Child] = ChildStore()
        self.gangs: ChildStore[GangObject] = ChildStore()
        self.gangs_found: GangsFound | None = None
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.caches = JobCaches()
        self.expectations = Expectations()
        """What was done for a job and is not shown yet."""

    def shown(self, resource: Resource, key: Key) -> Pod | Child | GangObject | None:
        """The object of this kind and name, as its informer shows it now."""
        stores: dict[Resource, ChildStore[Any]] = {
            PODS: self.pods,
            SERVICES: self.services,
            NETWORK_POLICIES: self.network_policies,
            CLAIMS: self.claims,
        }
        found: Pod | Child | GangObject | None = stores.get(resource, self.gangs).get(key)
        return found

    def learn_cluster_queue(self, name: str, found: ClusterQueue) -> None:
        """What a ClusterQueue says, for all jobs. What no job has asked again is forgotten: those that wait do it."""
        oldest = found.at - 2 * READ_TTL
        fresh = {other: one for other, one in self.cluster_queues.items() if one.at > oldest}
        self.cluster_queues = {**fresh, name: found}

    def rest(self, record: JobRecord) -> None:
        """Nothing is left to do for this finished job: cache nothing of it, unless there is news by now."""
        if not self.caches.of(record.uid).obstructed and self.jobs.get(record.key) is record:
            self.caches.forget(record.uid)

    def job_of(self, record: JobRecord) -> Job:
        """The job, :meth:`with_dropped`."""
        return self.with_dropped(record.job())

    def with_dropped(self, job: Job) -> Job:
        """The job with its status as it was written, also where the API server does not keep all of that: else it would
        be written again, for ever."""
        dropped = self.caches.of(job.uid).dropped
        if not dropped or (job.form.recorded_in and job.form.recorded_in not in job.raw_status):
            return job
        return job.with_status(apply_merge_patch(job.raw_status, dropped))

    def observe(self, job: Job) -> Observed:
        """Everything about one job, as the planner gets it."""
        cache = self.caches.of(job.uid)
        services, policies = cache.unlabelled_of(SERVICES, Child), cache.unlabelled_of(NETWORK_POLICIES, Child)
        claim = claim_name(job)
        return Observed(
            job=job,
            platform=self.platform,
            pods=_all_of(self.pods, job, cache.unlabelled_of(PODS, Pod)),
            service=self.services.get(job.key) or services.get(job.name),
            services=_all_of(self.services, job, services) if job.form.replica_services else (),
            network_policy=self.network_policies.get(job.key) or policies.get(job.name),
            claim=self.claims.get((job.namespace, claim)) or cache.unlabelled_of(CLAIMS, Child).get(claim),
            tensorboard=self.services.get((job.namespace, tensorboard_name(job.name))),
            verdict=cache.verdict,
            refusal=cache.refusal,
            obstacle=cache.obstacle,
            status_written_at=cache.status_written_at,
            told=frozenset(cache.told),
            gangs=self.gangs_found.within(job.namespace) if self.gangs_found is not None else None,
            gang=self.gangs.get(job.key) or _gang(cache, job.name),
            flavors=dict(cache.flavors),
            workload_priorities=dict(cache.workload_priorities),
            default_queue=cache.default_queue,
            cluster_queues=self.cluster_queues,
            progress=cache.progress,
            silence=cache.silence,
            stragglers=cache.step_timings.stragglers,
            waiting=cache.waiting,
            start_troubles=cache.start_troubles,
        )


def _all_of(store: ChildStore[C], job: Job, unlabelled: dict[str, C]) -> tuple[C, ...]:
    """The children of a job, and those that no informer shows."""
    found = {child.name: child for child in store.of(job).values()}
    for name, child in unlabelled.items():
        found.setdefault(name, child)
    return tuple(found.values())


def _gang(cache: JobCache, name: str) -> GangObject | None:
    """Somebody else's PodGroup or Workload that has the name which ours should have."""
    seen = (each.value for (_, taken), each in cache.unlabelled.items() if taken == name)
    return next((value for value in seen if isinstance(value, GangObject)), None)
