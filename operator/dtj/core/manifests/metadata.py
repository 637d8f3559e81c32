"""Names and labels of everything that a job owns, and the claim for its checkpoints."""

from __future__ import annotations

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.spec import JobSpec
from dtj.api.storage import ClaimMetadata


def labels_of(job: Job) -> JsonObject:
    """The labels of everything that the job owns."""
    return job.form.labels(job.name, job.uid)


def metadata_of(job: Job, name: str, *, labels: JsonObject) -> JsonObject:
    """Metadata of an object that the job owns."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [job.owner_reference()],
    }


def claim_name(job: Job) -> str:
    """Name of the claim that holds the checkpoints."""
    return f"{job.name}-checkpoint"


def claim(job: Job, spec: JobSpec) -> JsonObject | None:
    """The PersistentVolumeClaim that the job asks for, if it asks for one."""
    template = spec.checkpoint.claim_template if spec.checkpoint is not None else None
    if template is None or template.spec is None:
        return None
    given = template.metadata or ClaimMetadata()
    metadata = metadata_of(job, claim_name(job), labels={**(given.labels or {}), **labels_of(job)})
    if given.annotations:
        metadata["annotations"] = {**given.annotations}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
