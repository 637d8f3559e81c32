"""How far the training is, as the status says it: what the pods report, and what their ends add to that."""

from __future__ import annotations

from typing import Final

from dtj.api.status import ExportedModel, Progress
from dtj.core.context import JobContext
from dtj.core.manifests import accelerators
from dtj.core.manifests.pod import role_template
from dtj.core.observed import Termination
from dtj.core.status import format_time

_COMPLETED: Final = "done"
"""How far a training is that has completed: it has ended since it was asked last, and some stop early."""

_LAST_PHASE: Final = "Done"

_SLOW: Final = "NET/Socket"

_WAITING: Final = "waiting for pods"
_NO_REPORT: Final = "no report yet"


def progress(context: JobContext) -> Progress | None:
    """What is known of the training. That its pod has completed counts for more than what it last reported."""
    if context.leader in context.completed:
        return _final(context)
    latest = _latest(context)
    if latest is not None and latest.reported:
        return latest
    return Progress(text=_NO_REPORT if context.all_ready else _WAITING)


def _final(context: JobContext) -> Progress:
    """What the completed pod left in its termination message; of one that left nothing, its last answer.

    That answer is some seconds old: its percentage and its remaining time are wrong by now.
    """
    before, end = context.job.status.progress, _end_of_completed_pod(context)
    report = Progress.from_message(end.message) if end is not None else None
    if report is None and before is not None and before.text == _COMPLETED:
        return before
    report = report or (_latest(context) or Progress()).model_copy(update={"percent": None})
    corrupt = before.corrupt if before is not None else None
    if not report.reported:
        return Progress(text=_COMPLETED, corrupt=corrupt)
    at = end.finished_at if end is not None else None
    updated_at = format_time(at) if at is not None else before.updated_at if before is not None else ""
    final = {
        "phase": _LAST_PHASE,
        "eta_seconds": None,
        "text": _COMPLETED,
        "updated_at": updated_at,
        "corrupt": corrupt,
    }
    final["last_checkpoint_time"] = _checkpoint_time(before, report, updated_at)
    return report.model_copy(update=final)


def _end_of_completed_pod(context: JobContext) -> Termination | None:
    """How the replica that decides and exports ended, if it has succeeded and its pod is still there."""
    pod = context.pod_of(context.leader)
    return pod.termination if pod is not None and pod.succeeded else None


def _latest(context: JobContext) -> Progress | None:
    """The newest report of this attempt's pods; ``updated_at`` moves only when the training does."""
    before, seen = context.job.status.progress, context.latest_answer
    if seen is None:
        return before
    at = format_time(seen.at) if before is None or seen.progress.advanced(before) else before.updated_at
    slow = tuple(straggler.hostname for straggler in context.observed.stragglers)
    return seen.progress.model_copy(
        update={
            "text": seen.progress.in_words(),
            "stragglers": slow,
            "warning": seen.progress.warning or _slow_network(context, seen.progress.transport),
            "updated_at": at or format_time(seen.at),
            "last_checkpoint_time": _checkpoint_time(before, seen.progress, format_time(seen.at)),
            "corrupt": before.corrupt if before is not None else None,  # an answer's is reported before it is recorded
        }
    )


def _checkpoint_time(before: Progress | None, now: Progress, at: str) -> str:
    """When the newest checkpoint was first seen: ``at``, if it is another one than before."""
    if now.last_checkpoint_step is None:
        return ""
    same = before is not None and before.last_checkpoint_step == now.last_checkpoint_step
    return (before.last_checkpoint_time if before is not None and same else "") or at


def _slow_network(context: JobContext, transport: str) -> str:
    """What is wrong where gradients take the slow way although the pod has a fast one: NCCL itself says nothing."""
    leader = context.leader
    if leader is None or _SLOW not in transport.split(", "):
        return ""
    asked = accelerators.fabrics(role_template(context.job, context.spec, leader.role, platform=context.platform))
    if not asked:
        return ""
    return (
        f"gradients go by {_SLOW}, although the pods ask for {', '.join(asked)}: the image needs the libraries of that "
        "network, and its container IPC_LOCK; NCCL_DEBUG=INFO in env shows what NCCL tried"
    )


def exported(context: JobContext) -> ExportedModel | None:
    """What the replica that exports reported last; what the status says already, if it reports nothing.

    It is read as soon as it is there: the others may go on for long, and its pod may be gone by then.
    """
    end = _end_of_completed_pod(context)
    model = ExportedModel.from_message(end.message) if end is not None else None
    return model or context.job.status.export
