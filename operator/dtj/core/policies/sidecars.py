"""Sidecars that go on after the main container: the kubelet ends those that Kubernetes knows, others have some seconds.

Deleting a pod takes its log away, so a pod is deleted for its sidecars only when they do not end by themselves.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from dtj.core.observed import Pod
from dtj.core.pod_failure import ended_at

SIDECAR_SECONDS: Final = 5.0
"""How long ordinary sidecars may go on after the main container, before their pod is deleted."""


def left_to_the_kubelet(pod: Pod) -> bool:
    """Whether nothing but native sidecars runs, if anything: the kubelet ends those."""
    return pod.main_container_ended and not pod.sidecars


def seconds_left(pod: Pod, now: datetime) -> float:
    """How long the sidecars of a pod may still go on; 0 while its main container runs, and when their time is over."""
    if not pod.main_container_ended:
        return 0.0
    since = (now - ended_at(pod)).total_seconds()
    # A clock that is ahead may say that the main container is yet to end.
    return SIDECAR_SECONDS - since if 0 <= since < SIDECAR_SECONDS else 0.0
