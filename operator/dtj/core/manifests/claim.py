"""The claim for the checkpoints of a job."""

from __future__ import annotations

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.spec import JobSpec
from dtj.core.manifests.metadata import labels_of, metadata_of


def claim_name(job: Job) -> str:
    """Name of the claim that holds the checkpoints."""
    return f"{job.name}-checkpoint"


def claim(job: Job, spec: JobSpec) -> JsonObject | None:
    """The PersistentVolumeClaim that the job asks for, if it asks for one."""
    template = spec.checkpoint.claim_template if spec.checkpoint is not None else None
    if template is None:
        return None
    claim_spec: JsonObject = {
        "accessModes": [str(mode) for mode in template.access_modes],
        "resources": {"requests": {"storage": template.storage}},
    }
    if template.storage_class_name is not None:
        claim_spec["storageClassName"] = template.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata_of(job, claim_name(job), labels=labels_of(job)),
        "spec": claim_spec,
    }
