"""MultiKueue runs a job of one cluster, the manager, as a copy in another, a worker; what it writes on jobs."""

from __future__ import annotations

from typing import Final

from dtj.api.json import JsonObject, dig, text
from dtj.api.managed_by import other_controller

CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""``spec.managedBy`` of a job in the manager cluster. MultiKueue removes it from the copy."""

ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""The label of a copy in a worker cluster, with the name of the manager cluster."""

PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""The annotation (Kueue before 0.18: the label) of a copy that names the Workload which MultiKueue made for it."""


def is_dispatched(spec: JsonObject) -> bool:
    """Whether MultiKueue runs the job with this spec in another cluster."""
    return spec.get("managedBy") == CONTROLLER


def is_left_alone(spec: JsonObject) -> bool:
    """Whether our operator does nothing at all for a job with this spec: another controller runs it."""
    return other_controller(spec) is not None and not is_dispatched(spec)


def prebuilt_workload(body: JsonObject) -> str:
    """The name of the Workload that was made for a job, from the job's body; empty if our operator makes it."""
    annotated = text(dig(body, "metadata", "annotations", PREBUILT_WORKLOAD))
    return annotated or text(dig(body, "metadata", "labels", PREBUILT_WORKLOAD))
