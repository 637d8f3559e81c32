"""Names and labels of everything that a job owns."""

from __future__ import annotations

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Label


def labels_of(job: Job) -> JsonObject:
    """The labels of everything that the job owns."""
    return {
        Label.APP_NAME: "distributed-training-job",
        Label.APP_INSTANCE: job.name,
        Label.APP_PART_OF: job.name,
        Label.APP_MANAGED_BY: names.MANAGER,
        Label.JOB_NAME: job.name,
        Label.JOB_UID: job.uid,
    }


def gang_metadata(job: Job) -> JsonObject:
    """Metadata of the one PodGroup or Workload of a job."""
    return metadata_of(job, job.name, labels=labels_of(job))


def metadata_of(job: Job, name: str, *, labels: JsonObject) -> JsonObject:
    """Metadata of an object that the job owns."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [job.owner_reference()],
    }
