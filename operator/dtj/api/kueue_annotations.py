"""Kueue's annotations on a job: what its Workload must have too, and what our operator does not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""Parameters of a ProvisioningRequest, such as ``provreq.kueue.x-k8s.io/maxRunDurationSeconds``."""

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission-gated-by"
"""While a job has it, Kueue does not admit the job. Its value names the controllers that remove it."""

_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


_MAX_PARAMETERS: Final = 100
"""Most parameters that the API server takes in a ProvisioningRequest."""


def kept(annotations: Mapping[str, object]) -> dict[str, str]:
    """Those of a job's annotations that are read; all others may be long. One parameter too many is kept: it shows that
    there are too many, and a job may have thousands."""
    found = ((key, value) for key, value in annotations.items() if _is_read(key) and isinstance(value, str))
    others: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for key, value in found:
        if not key.startswith(PROVISIONING_PREFIX):
            others[key] = value
        elif len(parameters) <= _MAX_PARAMETERS:
            parameters[key] = value
    return {**others, **parameters}


def of_workload(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that the Workload of a job with ``annotations`` gets."""
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith(PROVISIONING_PREFIX) or (key == ADMISSION_GATE and value)
    }


def problems(annotations: Mapping[str, str]) -> Iterator[str]:
    """What a queued job asks for that our operator does not do."""
    if _MIN_PARALLELISM in annotations:
        yield (
            f"metadata.annotations: {_MIN_PARALLELISM}: the least number of workers is spec.elastic.minReplicas: set "
            "it there, and remove the annotation"
        )
    if annotations.get(_ELASTIC) == "true":
        yield (
            f"metadata.annotations: {_ELASTIC}: a job has one Workload, and waits in its queue again when its number "
            "of workers changes: remove it"
        )


def _is_read(key: str) -> bool:
    return key.startswith(PROVISIONING_PREFIX) or key in (ADMISSION_GATE, _MIN_PARALLELISM, _ELASTIC)
