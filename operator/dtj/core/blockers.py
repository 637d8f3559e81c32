"""What keeps a pod from starting: when it counts, and which pod is named when a job waits for its pods.

:mod:`dtj.kube.blockers` reads it from the words of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Reason
from dtj.core.observed import Blocker, Phase, Pod

PATIENCE: Final = timedelta(seconds=10)
"""How old a pod gets before the job reports what keeps it from starting.

Much of that passes within moments (a volume is bound, a node is freed), and a start that goes well would cost two
writes more.
"""

REASONS: Final = frozenset(
    {
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.POD_START_FAILED,
        Reason.CONTAINER_FAILED,
    }
)
"""What a job may say it waits for. An event reports each when it first shows."""

RECOVERED: Final = timedelta(minutes=10)
"""A container that has run so long is well again: the kubelet counts its next failure as the first (kubernetes,
pkg/kubelet/kubelet.go, MaxContainerBackOff)."""


def ailing(pods: Iterable[Pod], now: datetime) -> Iterator[tuple[Pod, Blocker]]:
    """Those of ``pods`` with a blocker that still counts, in the same order, and the blocker. One that is ready trains
    all the same: it is another container that fails."""
    for pod in pods:
        found = pod.blocker
        if found is None or pod.main_container_ended or pod.terminating:
            continue
        if found.at is None or now < found.at + RECOVERED:
            yield pod, found


def named(blocked: Iterable[tuple[Pod, Blocker]], now: datetime) -> tuple[Pod, Blocker] | None:
    """The first of them that is old enough to be named; one that waits for a container that may become ready, last."""
    old = [each for each in blocked if _due(each[0], now) <= now]
    return min(old, key=lambda each: may_pass(each[1]), default=None)


def may_pass(blocker: Blocker) -> bool:
    """Whether it is a container that may become ready."""
    return blocker.reason is Reason.WAITING_FOR_PODS


def seconds_until_named(blocked: Iterable[tuple[Pod, Blocker]], now: datetime) -> float | None:
    """Seconds until one of them is old enough; None where one is, or where there is none."""
    due = min((_due(pod, now) for pod, _ in blocked), default=now)
    return (due - now).total_seconds() if due > now else None


def _due(pod: Pod, now: datetime) -> datetime:
    return pod.created_at + PATIENCE if pod.created_at is not None else now


def waits_without_a_word(pod: Pod, now: datetime) -> bool:
    """Whether a pod has a node and does not start, for as long as is worth a word, and its status does not say why."""
    goes_on = pod.ready or pod.main_container_ended or pod.terminating or pod.phase is not Phase.PENDING
    return bool(pod.node) and not goes_on and pod.blocker is None and _due(pod, now) <= now
