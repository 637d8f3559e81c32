"""The headless Service of a job."""

from __future__ import annotations

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label
from dtj.api.spec import JobSpec
from dtj.core.manifests.metadata import labels_of, metadata_of


def service_selector(job: Job, attempt: int) -> dict[str, str]:
    """The labels by which a job's Service, and nobody else's, finds the pods of one attempt."""
    return {Label.JOB_UID: job.uid, Label.ATTEMPT: str(attempt)}


def service(job: Job, spec: JobSpec, *, attempt: int, config_map: str = "") -> JsonObject:
    """The headless Service that gives each replica its name; ``config_map`` is the one with their addresses, if any.

    It publishes addresses of pods that are not ready: peers must find each other before any is.
    """
    metadata = metadata_of(job, job.name, labels=labels_of(job))
    if config_map:
        metadata["annotations"] = {Annotation.CLUSTER: config_map}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(service_selector(job, attempt)),
            "ports": [
                {"name": "tf", "port": spec.port, "targetPort": spec.port},
                {"name": "status", "port": names.STATUS_PORT, "targetPort": names.STATUS_PORT},
            ],
        },
    }
