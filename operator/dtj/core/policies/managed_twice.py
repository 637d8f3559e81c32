"""A job whose status another controller writes is left alone."""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.core.actions import Decision, Emit
from dtj.core.context import JobContext
from dtj.core.policies.stale_status import newer_pods

_WORDS = (
    "another controller writes the status of this TFJob; is training-operator still started with the tfjob scheme? "
    "The operator does nothing for this job"
)
_IF_NOT = ". If it is not, delete the pods of the job: then all start again from the last checkpoint"


def leave(context: JobContext) -> Decision | None:
    """Touch nothing where the record that this process wrote is gone: only a status that is written whole loses it.

    So it is where another process of ours has restarted pods. The pods of a job that training-operator hands over are
    the first of their replicas.
    """
    job = context.job
    if not job.form.recorded_in or job.form.recorded_in in job.raw_status:
        return None
    wrote = context.observed.status_written_at is not None
    if not wrote and not (job.raw_status and not job.status.terminal and newer_pods(context)):
        return None
    if Reason.MANAGED_TWICE in context.observed.told:
        return Decision()
    return Decision.of(Emit("Warning", Reason.MANAGED_TWICE, _WORDS if wrote else _WORDS + _IF_NOT))
