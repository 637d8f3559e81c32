"""How far the training is, as the status says it: what the pods report, and what their ends add to that."""

from __future__ import annotations

from typing import Final

from dtj.api.status import ExportedModel, Progress
from dtj.core.context import JobContext
from dtj.core.replicas import deciding_replica
from dtj.core.status import format_time

_COMPLETED: Final = "done"
"""How far a training is that has completed: it has ended since it was asked last, and some stop early."""

_WAITING: Final = "waiting for pods"
_NO_REPORT: Final = "no report yet"


def progress(context: JobContext) -> Progress | None:
    """What is known of the training. That its pod has completed counts for more than what it last reported."""
    latest = _latest(context)
    if deciding_replica(context.spec) in context.completed:
        return latest.model_copy(update={"text": _COMPLETED}) if latest is not None else Progress(text=_COMPLETED)
    if latest is not None and latest.reported:
        return latest
    return Progress(text=_NO_REPORT if context.all_ready else _WAITING)


def _latest(context: JobContext) -> Progress | None:
    """The newest report of this attempt's pods; ``updated_at`` moves only when the training does."""
    before, seen = context.job.status.progress, context.latest_answer
    if seen is None:
        return before
    at = format_time(seen.at) if before is None or seen.progress.advanced(before) else before.updated_at
    slow = tuple(straggler.hostname for straggler in context.observed.stragglers)
    return seen.progress.model_copy(
        update={"text": seen.progress.in_words(), "stragglers": slow, "updated_at": at or format_time(seen.at)}
    )


def exported(context: JobContext) -> ExportedModel | None:
    """What the replica that exports reported last; what the status says already, if it reports nothing.

    It is read as soon as it is there: the others may go on for long, and its pod may be gone by then.
    """
    exporter = deciding_replica(context.spec)
    name = context.name_of(exporter) if exporter is not None else ""
    for pod in context.current:
        if pod.name == name and pod.succeeded and pod.termination is not None:
            return ExportedModel.from_message(pod.termination.message) or context.job.status.export
    return context.job.status.export
