"""What the runner asks of an adapter: a module with these names, in this folder or elsewhere."""

from typing import Any, Protocol, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""An object of the API, or a part of behaviours.yaml."""


class Adapter(Protocol):
    """One kind of job."""

    API: str
    """Its API group and version, such as ``kubeflow.org/v1``."""
    PLURAL: str
    """Its resource, such as ``tfjobs``."""
    LABELS: tuple[str, str, str]
    """The labels of its pods with the job's name, the role and the index. Services have the first one, too."""
    STATES: dict[str, str]
    """The state that a condition type means where it is True, the first of them: running, restarting, suspended,
    succeeded, failed or invalid. Without any, the job is pending.
    """

    def manifest(self, name: str, job: JsonObject) -> JsonObject:
        """The manifest of a job in the neutral form of behaviours.yaml."""


def template(job: JsonObject, container: str, **more: object) -> JsonObject:
    """The pod template of a neutral job. No scheduler knows its pods, so that no kubelet but the runner's gets them."""
    main = {"name": container, "image": "example.com/training:1", "resources": job.get("resources", {}), **more}
    return {"spec": {"schedulerName": "conformance", "containers": [main]}}


def chosen(job: JsonObject, *keys: str) -> JsonObject:
    """Those of these fields that the job has."""
    return {key: job[key] for key in keys if key in job}
