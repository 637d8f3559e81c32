"""How a job ends: the outcome is recorded first, then all that must stop is stopped, then the job has ended.

A job with an evaluator ends when the evaluator has ended, so that the last checkpoint is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Condition, Reason
from dtj.api.spec import Role
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions, with_conditions
from dtj.core.context import JobContext
from dtj.core.messages import first_few
from dtj.core.observed import Pod
from dtj.core.outcome import Failure, Success
from dtj.core.policies import admission, clean_pod_policy, job_service, ttl_after_finished
from dtj.core.policies.clean_pod_policy import seconds_until_given_up, stop_pods, to_stop
from dtj.core.replicas import replicas
from dtj.core.status import format_deadline, format_time, true_since, without_unreported_progress
from dtj.core.status_update import counted, write

_LIMITS: Final = (Reason.DEADLINE_EXCEEDED, Reason.BACKOFF_LIMIT_EXCEEDED)
"""Ends at which Kubeflow's operator deletes the pods of a TFJob under each ``cleanPodPolicy``
(``ReconcileJobs`` in ``pkg/controller.v1/common/job.go``)."""


def finish(context: JobContext, outcome: Success | Failure) -> Decision:
    """The one way to end. The outcome is recorded first; the job has ended when all that must stop is gone.

    Before that, the evaluator of a job that has succeeded may evaluate the last checkpoint.
    """
    waits_for_evaluator = isinstance(outcome, Success) and context.job.form.waits_for_evaluator
    evaluating = _evaluators(context) if waits_for_evaluator else ()
    due = _evaluation_due(context)
    if context.now >= due:
        evaluating = ()
    limited = context.job.form.kubeflow_clean_up and outcome.reason in _LIMITS
    stopping = [pod for pod in to_stop(context, all_that_run=limited) if pod not in evaluating]
    # Pods that have ended hold nothing: they are deleted, and the end waits for none of them.
    holding = [pod for pod in stopping if not pod.all_containers_ended]
    waits = [seconds_until_given_up(pod, context.job.status, _now_for(context, outcome, pod)) for pod in holding]
    if evaluating:
        names = first_few(pod.name for pod in evaluating)
        words = f"{names} evaluates the last checkpoint, until {format_deadline(due)} at most"
        return _stop(context, outcome, stopping, [*waits, context.seconds_until(due)], words)
    if any(wait is None or wait > 0 for wait in waits):
        return _stop(context, outcome, stopping, waits)
    return _end(context, outcome, hanging=holding)


def notice_change(context: JobContext) -> Decision | None:
    """Record that a change of a job that has ended is known, such as another time to live: to kstatus a status of
    another generation is one that is still being worked on."""
    job, status = context.job, context.job.status
    if status.observed_generation <= 0 or status.observed_generation == job.generation:
        return None  # the first is one that Kubeflow's operator has written
    ours = {"observed_generation": job.generation}
    noticed = tuple(
        each.model_copy(update=ours) if each.type in Condition.__members__.values() else each
        for each in status.conditions
    )
    return Decision.write(status.model_copy(update={**ours, "conditions": noticed})).then(RequeueAfter(0.0))


def _stop(
    context: JobContext,
    outcome: Success | Failure,
    stopping: Collection[Pod],
    waits: Iterable[float | None],
    words: str = "",
) -> Decision:
    """Record the outcome, then stop these pods; look again when the first of the ``waits`` for them is over."""
    ready = DesiredCondition("False", Reason.STOPPING_PODS, words)
    awaited = [wait for wait in waits if wait is not None and wait > 0]
    again = (RequeueAfter(min(awaited)),) if awaited else ()
    recorded = write(context, _status(context, outcome), _decided(outcome, ready))
    return recorded.then(*stop_pods(context, stopping), *again)


def _end(context: JobContext, outcome: Success | Failure, hanging: Collection[Pod]) -> Decision:
    """The job has ended. Pods that hang are on nodes that nobody hears of, most likely."""
    succeeded = isinstance(outcome, Success)
    words = f"; {first_few(map(_place, hanging))} did not stop in time" if hanging else ""
    if succeeded and context.job.form.waits_for_evaluator:
        words = _not_evaluated(context) + words
    ended = DesiredCondition("True", outcome.reason, outcome.message + words)
    desired = _decided(outcome, DesiredCondition("False", Reason.JOB_FINISHED))
    desired = replace(desired, complete=ended) if succeeded else replace(desired, failed=ended)
    status = _status(context, outcome).model_copy(update={"completion_time": format_time(context.now)})
    return Decision.write(with_conditions(context, status, desired)).then(
        Emit("Normal" if succeeded else "Warning", outcome.reason, ended.message),
        *_kept(context),
        *((RequeueAfter(0.0),) if job_service.drop(context) or admission.end(context) else ()),
        *ttl_after_finished.kept(context),
    )


def _status(context: JobContext, outcome: Success | Failure) -> JobStatus:
    cause = outcome.cause if isinstance(outcome, Failure) else None
    status = counted(context).model_copy(update={"root_cause": cause, "pending_restart": None})
    return status if isinstance(outcome, Success) else without_unreported_progress(status)


def _decided(outcome: Success | Failure, ready: DesiredCondition) -> DesiredConditions:
    """The conditions of a job whose outcome is decided."""
    decided = DesiredCondition("True", outcome.reason, outcome.message)
    if isinstance(outcome, Success):
        return DesiredConditions(pods_ready=ready, success_criteria_met=decided)
    return DesiredConditions(pods_ready=ready, failure_target=decided)


def _now_for(context: JobContext, outcome: Success | Failure, pod: Pod) -> datetime:
    """The present, for a pod that was asked to stop when the outcome was recorded; an evaluator was asked later."""
    later = pod.role == Role.EVALUATOR and isinstance(outcome, Success)
    return context.now - timedelta(seconds=context.spec.run_policy.evaluation_timeout_seconds if later else 0)


def _kept(context: JobContext) -> tuple[Emit, ...]:
    """Who looks for what still holds a GPU is told of the pods that go on."""
    kept = clean_pod_policy.left_running(context)
    if not kept:
        return ()
    words = (
        "pods that go on after the end of the job and hold their resources, because cleanPodPolicy is None: "
        f"{first_few(pod.name for pod in kept)}. Delete them, or set Running"
    )
    return (Emit("Warning", Reason.PODS_KEPT, words),)


def _place(pod: Pod) -> str:
    return f"{pod.name} on node {pod.node}" if pod.node else pod.name


def _evaluators(context: JobContext) -> tuple[Pod, ...]:
    """The evaluators that are at work: nobody has asked them to stop."""
    return tuple(
        pod
        for pod in context.current
        if pod.role == Role.EVALUATOR and not pod.main_container_ended and not pod.terminating
    )


def _evaluation_due(context: JobContext) -> datetime:
    """Until when they are waited for. It counts from when the success was recorded, or from now."""
    recorded = true_since(context.job.status, Condition.SUCCESS_CRITERIA_MET)
    return (recorded or context.now) + timedelta(seconds=context.spec.run_policy.evaluation_timeout_seconds)


def _not_evaluated(context: JobContext) -> str:
    """What to say where the last checkpoint was not evaluated: the evaluator did not end in time, or was not there."""
    missing = [each.hostname for each in replicas(context.spec, (Role.EVALUATOR,)) if each not in context.completed]
    if not missing:
        return ""
    if context.now < _evaluation_due(context):
        return f"; the last checkpoint was not evaluated, because {first_few(missing)} was lost"
    limit = context.spec.run_policy.evaluation_timeout_seconds
    return f"; {first_few(missing)} did not end within {limit} s, which is runPolicy.evaluationTimeoutSeconds"
