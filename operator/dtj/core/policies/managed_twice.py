"""A job whose status another controller writes is left alone."""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.core.actions import Decision, Emit
from dtj.core.context import JobContext

_WORDS = (
    "another controller writes the status of this TFJob; is training-operator still started with the tfjob scheme? "
    "The operator does nothing for this job"
)


def leave(context: JobContext) -> Decision | None:
    """Touch nothing where the record that this process wrote is gone: only a status that is written whole loses it."""
    job = context.job
    wrote = context.observed.status_written_at is not None
    if not (job.form.recorded_in and wrote) or job.form.recorded_in in job.raw_status:
        return None
    return Decision.of(Emit("Warning", Reason.MANAGED_TWICE, _WORDS))
