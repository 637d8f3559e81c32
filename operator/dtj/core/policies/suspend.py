"""Suspended jobs: their pods are stopped by our own will, so that whatever exit codes they have, nothing has failed."""

from __future__ import annotations

from typing import Final

from dtj.api.names import Reason
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, DeletePod, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions
from dtj.core.context import JobContext
from dtj.core.policies import admission, job_service
from dtj.core.replicas import worker_selector
from dtj.core.status import of_a_new_attempt, ready_text, without_unreported_progress
from dtj.core.status_update import write

SUSPENDED_BY_USER: Final = DesiredCondition("True", Reason.SUSPENDED, "set runPolicy.suspend to false to go on")


def suspend(context: JobContext) -> Decision | None:
    """Stop what runs while ``runPolicy.suspend`` is set, also of a job whose manifest has problems."""
    if not context.spec.run_policy.suspend:
        return None
    stopping = stop_all(context, SUSPENDED_BY_USER)
    return stopping if context.has_something_to_stop else stopping.then(*admission.drop(context))


def stop_all(context: JobContext, why: DesiredCondition) -> Decision:
    """Stop all pods, then the Service; ``why`` becomes the condition Suspended.

    The next attempt's number is recorded first, so that the pods of a job that goes on need not wait for the names of
    these.
    """
    status = without_unreported_progress(context.job.status)
    started = status.start_time is not None
    if started:
        status = status.model_copy(update={"attempt": context.attempt + 1})
    changed = hold(context, status, why)
    if started:
        words = f"stopping {len([pod for pod in context.own if not pod.all_containers_ended])} pods"
        return changed.then(Emit("Normal", why.reason, words), RequeueAfter(0.0))
    stop = (DeletePod(pod.name, pod.uid) for pod in context.own if not pod.terminating)
    return changed.then(*stop, *job_service.drop(context))


def hold(context: JobContext, status: JobStatus, why: DesiredCondition) -> Decision:
    """Write that the job does not run: ``status`` as before an attempt, and ``why`` as the condition Suspended."""
    counts = of_a_new_attempt(context.job.spec, status.replica_statuses, context.holding)
    if not context.job.form.keeps_ended_pods and not context.own:
        # Others look for a resumed job's pods by their first names, which are free again.
        counts = {role: count.model_copy(update={"restarts": {}}) for role, count in counts.items()}
        status = status.model_copy(update={"first_attempt": status.attempt})
    progress = status.progress
    if progress is not None:
        # Whether the pods of a job that goes on have the launcher is not known: its image may change meanwhile.
        progress = progress.model_copy(update={"world": None})
    held = status.model_copy(
        update={
            "progress": progress,
            "start_time": None,
            "ready_time": None,
            "pending_restart": None,
            "world": None,
            "replica_statuses": counts,
            "ready": ready_text(counts),
            "selector": worker_selector(context.job),
        }
    )
    ready = DesiredCondition("False", why.reason)
    return write(context, held, DesiredConditions(pods_ready=ready, suspended=why))
