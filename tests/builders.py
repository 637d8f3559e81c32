"""Builders of jobs and pods for tests: say what matters, the rest is a small valid job."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.api.spec import JobSpec
from dtj.core.observed import GangsFound, Observed, Phase, Pod, Termination
from dtj.core.platform import Platform
from dtj.core.status import format_time
from dtj.engine.job_store import JobRecord
from dtj.kube.job_body import job_from_object

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UID = "0b5e4c1e-0000-4000-8000-000000000001"
CLAIM_TEMPLATE: JsonObject = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def at(seconds: float = 0) -> str:
    """A time of an API server, so long after :data:`NOW`."""
    return format_time(NOW + timedelta(seconds=seconds))


def manifest(
    name: str = "digits", *, strategy: str = "MultiWorkerMirrored", roles: dict[str, int] | None = None, **spec: object
) -> JsonObject:
    """A manifest as a user would write it.

    ``roles`` are replicas by task type; ``spec`` adds fields or replaces them, and None leaves one out.
    """
    fields: dict[str, object] = {
        "strategy": strategy,
        "replicaSpecs": {role: {"replicas": count} for role, count in (roles or {"worker": 2}).items()},
        "template": {"spec": {"containers": [{"name": "trainer", "image": "example/trainer:1"}]}},
        **copy.deepcopy(spec),
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},  # type: ignore[misc]
    }


def priority_class(name: str) -> JsonObject:
    """A PriorityClass of Kubernetes, above pods that name none."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }


def stored(body: JsonObject, *, namespace: str = "default", uid: str = UID, generation: int = 1) -> JsonObject:
    """``body`` as an API server would give it back."""
    metadata = object_at(body, "metadata")
    return {
        **body,
        "metadata": {
            **metadata,
            "namespace": namespace,
            "uid": uid,
            "generation": generation,
            "resourceVersion": "1",
            "creationTimestamp": at(),
        },
    }


def job(name: str = "digits", **arguments: object) -> Job:
    """A job out of :func:`manifest`'s arguments."""
    return Job.from_object(stored(manifest(name, **arguments)))  # type: ignore[arg-type]


def spec_of(job: Job) -> JobSpec:
    """The spec of a job whose manifest can be read."""
    assert job.spec is not None, job.problems
    return job.spec


def record_of(body: JsonObject) -> JobRecord:
    """A stored job as an engine keeps it."""
    return JobRecord.of(job_from_object(body))


def kept(job: Job) -> JobRecord:
    """The job as an engine keeps it."""
    metadata: JsonObject = {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "generation": job.generation,
        "resourceVersion": job.resource_version,
    }
    return record_of({"metadata": metadata, "spec": job.raw_spec, "status": job.status.to_object()})


def edited(job: Job, **policy: object) -> Job:
    """The job after its user has changed these fields of ``runPolicy``, which go by their names in Python."""
    spec = spec_of(job)
    spec = spec.model_copy(update={"run_policy": spec.run_policy.model_copy(update=policy)})
    return replace(job, spec=spec, generation=job.generation + 1)


def pod(
    owner: Job,
    replica: str,
    *,
    phase: Phase = Phase.RUNNING,
    ready: bool | None = None,
    owner_uid: str | None = None,
    terminating: bool = False,
    termination: Termination | None = None,
) -> Pod:
    """The pod of a replica such as ``worker-1``; running and ready by default."""
    role, _, index = replica.rpartition("-")
    return Pod(
        namespace=owner.namespace,
        name=f"{owner.name}-{replica}",
        uid=f"uid-of-{owner.name}-{replica}",
        owner_uid=owner.uid if owner_uid is None else owner_uid,
        job_name=owner.name,
        role=role,
        index=int(index),
        phase=phase,
        ready=phase is Phase.RUNNING if ready is None else ready,
        terminating=terminating,
        node="node-1",
        termination=termination,
        created_at=NOW,
    )


def ended(exit_code: int, *, after_seconds: float = 0, reason: str = "", message: str = "") -> Termination:
    """The end of a main container, this many seconds after :data:`NOW`."""
    return Termination(
        exit_code=exit_code,
        reason=reason or ("Completed" if exit_code == 0 else "Error"),
        message=message,
        finished_at=NOW + timedelta(seconds=after_seconds),
    )


def seen(job: Job, *, platform: Platform | None = None, **more: object) -> Observed:
    """What an operator sees of a job in a cluster without gang schedulers; ``more`` are fields of ``Observed``."""
    return Observed(job=job, platform=platform or Platform(), **{"gangs": GangsFound((), NOW), **more})  # type: ignore[arg-type]
