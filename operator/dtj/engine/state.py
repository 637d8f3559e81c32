"""The cluster as one value to observe: the stores of all kinds together, and what is cached in addition."""

from __future__ import annotations

from typing import Any

from dtj.core.manifests.claim import claim_name
from dtj.core.observed import Child, GangObject, GangsFound, Observed, Pod
from dtj.core.platform import Platform
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.engine.job_cache import JobCache, JobCaches
from dtj.engine.job_store import JobStore
from dtj.engine.stores import ChildStore, JobRecord
from dtj.kube.gateway import CLAIMS, NETWORK_POLICIES, PODS, SERVICES, Resource
from dtj.kube.records import Key


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
        self.caches = JobCaches()

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

    def rest(self, record: JobRecord) -> None:
        """Nothing is left to do for this finished job: keep no more of it than a later event needs."""
        if not self.caches.of(record.job.uid).obstructed and self.jobs.rest(record):
            self.caches.forget(record.job.uid)

    def wake(self, key: Key) -> None:
        """Something happened that may concern this job."""
        if self.jobs.wake(key) and (record := self.jobs.get(key)) is not None:
            self.caches.begin(record.job.uid)

    def observe(self, record: JobRecord) -> Observed:
        """Everything about one job, as the planner gets it."""
        job = record.whole()
        cache = self.caches.of(job.uid)
        pods = {pod.name: pod for pod in self.pods.of(job).values()}
        unseen = {
            name: pod for name, pod in cache.unlabelled_of(PODS).items() if isinstance(pod, Pod) and name not in pods
        }
        return Observed(
            job=job,
            platform=self.platform,
            pods=(*pods.values(), *unseen.values()),
            service=self.services.get(job.key) or _child(cache.unlabelled_of(SERVICES).get(job.name)),
            network_policy=self.network_policies.get(job.key)
            or _child(cache.unlabelled_of(NETWORK_POLICIES).get(job.name)),
            claim=self.claims.get((job.namespace, claim_name(job)))
            or _child(cache.unlabelled_of(CLAIMS).get(claim_name(job))),
            tensorboard=self.services.get((job.namespace, tensorboard_name(job.name))),
            verdict=cache.verdict,
            refusal=cache.refusal,
            obstacle=cache.obstacle,
            status_written_at=cache.status_written_at,
            gangs=self.gangs_found,
            gang=self.gangs.get(job.key) or _gang(cache, job.name),
            flavors=dict(cache.flavors),
            workload_priorities=dict(cache.workload_priorities),
            default_queue=cache.default_queue,
            dropped=cache.dropped,
            progress=cache.progress,
            silence=cache.silence,
            stragglers=cache.step_timings.stragglers,
            start_troubles=cache.start_troubles,
        )


def _gang(cache: JobCache, name: str) -> GangObject | None:
    """Somebody else's PodGroup or Workload that has the name which ours should have."""
    seen = (each.value for (_, taken), each in cache.unlabelled.items() if taken == name)
    return next((value for value in seen if isinstance(value, GangObject)), None)


def _child(unlabelled_of: Pod | Child | GangObject | None) -> Child | None:
    return unlabelled_of if isinstance(unlabelled_of, Child) else None
