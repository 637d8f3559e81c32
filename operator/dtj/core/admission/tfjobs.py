"""Who schedules the pods of TFJobs together: as Kubeflow's operator, ours is told once for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import JsonValue

from dtj.api import kueue
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.names import Reason
from dtj.api.spec import Gang, Scheduling
from dtj.api.tfjob.read import SCHEDULING
from dtj.core.platform import Platform
from dtj.core.validity import Problem


def as_configured(job: Job, platform: Platform) -> Job:
    """A TFJob with the gang scheduler of this platform; with Kueue instead if it names a queue, and our operator is to
    queue it. Other jobs name theirs themselves."""
    if not job.form.chart_section or job.spec is None:
        return job
    asked, queue = job.spec.scheduling, job.labels.get(kueue.QUEUE, "")
    if queue and platform.queues_tfjobs:
        scheduling = Scheduling(gang=Gang.KUEUE, queue=queue, priority_class_name=asked.priority_class_name)
    else:
        scheduling = asked.model_copy(update={"gang": platform.gang_of_tfjobs})
    run_policy = job.spec.run_policy.model_copy(update={"scheduling": scheduling})
    return replace(job, spec=job.spec.model_copy(update={"run_policy": run_policy}))


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that a job says of its scheduling: our name of the field, and where it is in the manifest."""

    field: str
    place: str
    value: JsonValue


def asked(job: Job) -> tuple[Asked, ...]:
    """All that a job says of its scheduling, but for the name of the scheduler."""
    where = job.form.scheduling_field
    names = {**SCHEDULING, "gang": ""}
    given = fields_of(dig(job.raw_spec, "runPolicy", where))
    found = (
        Asked(names.get(key, key), f"spec.runPolicy.{where}.{key}", value) for key, value in given.items() if value
    )
    return tuple(each for each in found if each.field)


def least_resources(job: Job) -> JsonObject:
    """What a TFJob says that its pods need before any starts; empty if that is to be counted."""
    return fields_of(dig(job.raw_spec, "runPolicy", job.form.scheduling_field, "minResources"))


def setting(job: Job, scheduling: Scheduling) -> str:
    """Where the scheduler of a job is named, and a user or an administrator names another one."""
    section = job.form.chart_section
    if not section:
        return f"runPolicy.{job.form.scheduling_field}"
    return f"{section}.{'kueue' if scheduling.gang is Gang.KUEUE else 'gangScheduler'} of the operator's chart"


def problems(job: Job) -> tuple[Problem, ...]:
    """Why no scheduler can ever place enough pods of a TFJob."""
    scheduling = job.spec.run_policy.scheduling if job.spec is not None else None
    if job.spec is None or not job.form.chart_section:
        return ()
    if scheduling is None or scheduling.gang in (Gang.NONE, Gang.KUEUE):
        return ()
    pods = sum(job.spec.replicas(role) for role in job.spec.roles())
    if (scheduling.min_available or 0) <= pods:
        return ()
    message = (
        f"spec.runPolicy.schedulingPolicy.minAvailable: {scheduling.min_available} is more than the {pods} pods of the "
        "job: lower it, or remove it"
    )
    return (Problem(Reason.GANG_UNAVAILABLE, message),)
