"""Which of a job's pods is named when the job waits for its pods: the first that says what keeps it from starting."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Reason
from dtj.core.observed import Pod

PATIENCE: Final = timedelta(seconds=10)
"""How old a pod gets before it is said what keeps it from starting.

Much of that passes within moments (a volume is bound, a node is freed), and a start that goes well would cost two
writes more.
"""

REASONS: Final = frozenset({Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED, Reason.CONTAINER_CONFIG_ERROR})
"""What a job may say it waits for. Each is told by an event when it first shows."""


def blocked(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Those of ``pods`` that something keeps from starting, in the same order."""
    return tuple(pod for pod in pods if pod.blocker is not None and not (pod.ready or pod.ended or pod.terminating))


def named(blocked: Iterable[Pod], now: datetime) -> Pod | None:
    """The first of them that is old enough to be named."""
    return next((pod for pod in blocked if _due(pod, now) <= now), None)


def seconds_until_named(blocked: Iterable[Pod], now: datetime) -> float | None:
    """Seconds until one of them is old enough; None where one is, or where there is none."""
    due = min((_due(pod, now) for pod in blocked), default=now)
    return (due - now).total_seconds() if due > now else None


def _due(pod: Pod, now: datetime) -> datetime:
    return pod.created_at + PATIENCE if pod.created_at is not None else now
