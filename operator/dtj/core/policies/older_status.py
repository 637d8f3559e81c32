"""The status of a finished job that an older operator wrote: the conditions that it did not know are added, once."""

from __future__ import annotations

from dtj.core.conditions import of_an_ended_job
from dtj.core.context import JobContext
from dtj.core.decision import Decision


def bring_up_to_date(context: JobContext) -> Decision | None:
    """Complete the conditions. A job that has not ended gets all of them with each write."""
    status = context.job.status
    found = of_an_ended_job(status, context.now)
    return Decision.write(status.model_copy(update={"conditions": found})) if found != status.conditions else None
