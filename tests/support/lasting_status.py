"""What two runs of the same story must come to, whenever they ran."""

from __future__ import annotations

from dtj.api.status import JobStatus


def lasting(status: JobStatus) -> tuple[object, ...]:
    """A status without the times in it."""
    return (
        status.state,
        status.reason,
        status.ready,
        status.attempt,
        status.restarts,
        status.root_cause,
        status.replica_statuses,
    )
