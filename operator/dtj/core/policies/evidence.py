"""Whether the infrastructure caused an end that looks so. Without evidence a restart is free a few times in a row only.

A trainer that lost a peer, or that saved and left, says so by its exit code alone, and a program can leave with these
codes each time. Evidence is a pod that was taken away, or a step that was never reached before. What repeats without it
counts against ``backoffLimit``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dtj.api.spec import COLLECTIVE
from dtj.api.status import JobStatus
from dtj.core.context import JobContext
from dtj.core.pod_failure import PodEnd, PodFailureClass, was_taken_away
from dtj.core.pod_state import replica_of
from dtj.core.progress import progress
from dtj.core.replicas import TRAINING_ROLES

FREE_IN_A_ROW: Final = 3
"""Restarts in a row that nobody pays for although nothing shows that the infrastructure caused them."""

_BY_EXIT_CODE: Final = (PodFailureClass.PREEMPTION, PodFailureClass.PEER_LOST)


def judged(context: JobContext, ended: PodEnd) -> PodEnd:
    """The same end; as an error of the training where it says that the infrastructure caused it and nothing shows so.

    A peer that has completed is not lost: who still waits for it made a call that not all workers make.
    """
    if ended.failure_class not in _BY_EXIT_CODE or _anybody_taken_away(context):
        return ended
    peer = _completed_peer(context) if ended.failure_class is PodFailureClass.PEER_LOST else None
    if peer is not None:
        waits = replica_of(ended.pod)
        who = waits.hostname if waits is not None else ended.pod.name
        note = f"{peer} has completed while {who} waits for it: all workers must make the same calls"
        return replace(ended, failure_class=PodFailureClass.USER_ERROR, note=note)
    before = context.job.status.restarts_without_evidence
    if _has_advanced(context) or before == 0:
        return ended
    note = f"it is restart {before + 1} in a row without a lost pod or a new step"
    if before < FREE_IN_A_ROW:
        return replace(ended, note=note)
    return replace(ended, failure_class=PodFailureClass.USER_ERROR, note=f"{note}, so it counts as an error")


def recorded(context: JobContext, status: JobStatus, failure_class: PodFailureClass) -> JobStatus:
    """``status`` with what later judgements need: restarts in a row without evidence, and the furthest step so far."""
    step = _step(context)
    shown = failure_class is PodFailureClass.DISRUPTION or _anybody_taken_away(context) or _has_advanced(context)
    more = int(failure_class in _BY_EXIT_CODE)
    update: dict[str, object] = {"restarts_without_evidence": 0 if shown else status.restarts_without_evidence + more}
    if step is not None:
        update["furthest_step"] = max(step, status.furthest_step or 0)
    return status.model_copy(update=update)


def _anybody_taken_away(context: JobContext) -> bool:
    return any(was_taken_away(pod) for pod in context.current)


def _completed_peer(context: JobContext) -> str | None:
    """A worker of a collective that has completed, by name."""
    if context.spec.strategy not in COLLECTIVE:
        return None
    peers = sorted(replica.hostname for replica in context.completed if replica.role in TRAINING_ROLES)
    return peers[0] if peers else None


def _step(context: JobContext) -> int | None:
    known = progress(context)
    steps = (report.step for report in (known, context.job.status.progress) if report is not None)
    return max((step for step in steps if step is not None), default=None)


def _has_advanced(context: JobContext) -> bool:
    """Whether the training has been further than at any restart before."""
    step, furthest = _step(context), context.job.status.furthest_step
    return step is not None and step > (furthest if furthest is not None else 0)
