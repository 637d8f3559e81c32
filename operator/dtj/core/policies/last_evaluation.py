"""A job with an evaluator ends when the evaluator has ended, so that the last checkpoint is evaluated."""

from __future__ import annotations

from datetime import datetime, timedelta

from dtj.api.job import parse_time
from dtj.api.names import Condition
from dtj.api.spec import Role
from dtj.core.context import JobContext
from dtj.core.observed import Pod
from dtj.core.pod_state import replica_of


def evaluators(context: JobContext) -> tuple[Pod, ...]:
    """The evaluators that are at work: nobody has asked them to stop."""
    return tuple(pod for pod in context.current if pod.role == Role.EVALUATOR and not pod.ended and not pod.terminating)


def due(context: JobContext) -> datetime:
    """Until when they are waited for. It counts from when the success was recorded, or from now."""
    met = context.job.status.condition(Condition.SUCCESS_CRITERIA_MET)
    recorded = parse_time(met.last_transition_time) if met is not None and met.status == "True" else None
    return (recorded or context.now) + timedelta(seconds=context.spec.run_policy.evaluation_timeout_seconds)


def cut_off(context: JobContext, pods: tuple[Pod, ...]) -> str:
    """What to say about evaluators that are stopped in the middle; nothing where there are none."""
    if not pods:
        return ""
    names = ", ".join(replica.hostname for pod in pods if (replica := replica_of(pod)) is not None)
    limit = context.spec.run_policy.evaluation_timeout_seconds
    return f"; {names} did not end within {limit} s, which is runPolicy.evaluationTimeoutSeconds, and was stopped"
