"""What Volcano means on a job: the annotations by which its plugins are told about a PodGroup."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

_DOMAINS: Final = ("volcano.sh/", "scheduling.volcano.sh/")
_WAITING_TIME: Final = "sla-waiting-time"
_MOST: Final = 32
"""Most annotations of one job that are kept. Volcano knows some ten, and a job may have thousands."""


def kept_annotations(annotations: Mapping[str, object]) -> dict[str, str]:
    """Those of a job's annotations that its PodGroup gets, as Kubeflow's operator copies them."""
    found = (
        (key, value)
        for key, value in annotations.items()
        if isinstance(value, str) and (key.startswith(_DOMAINS) or key == _WAITING_TIME)
    )
    return dict(islice(found, _MOST))
