"""A new attempt: all replicas start again from the last checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dtj.api.names import Reason
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions, with_conditions
from dtj.core.context import JobContext
from dtj.core.status import format_time, of_a_new_attempt, ready_text


def begin_attempt(context: JobContext, kind: Literal["Normal", "Warning"], why: str, charged: JobStatus) -> Decision:
    """Record a new attempt before any pod is touched; the next pass finds pods of an older one, and replaces them.

    ``charged`` is the status in which this restart is paid for already, if anything pays for it.
    """
    number = max(charged.attempt, 1) + 1
    message = f"attempt {number}: {why}; all replicas start again from the last checkpoint"
    counts = of_a_new_attempt(context.spec, charged.replica_statuses)
    status = charged.model_copy(
        update={
            "attempt": number,
            "last_restart_time": format_time(context.now),
            "pending_restart": None,
            "world": None,
            "replica_statuses": counts,
            "ready": ready_text(counts),
        }
    )
    starting = DesiredCondition("False", Reason.NEW_ATTEMPT, message)
    desired = DesiredConditions(pods_ready=starting, restarting=replace(starting, status="True"))
    return Decision.write(with_conditions(context, status, desired)).then(
        Emit(kind, Reason.NEW_ATTEMPT, message),
        RequeueAfter(0.0),  # nothing else may happen that would start the next pass
    )
