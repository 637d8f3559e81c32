"""How a job ends: the outcome is recorded first, then all that must stop is stopped, then the job has ended."""

from __future__ import annotations

from dataclasses import replace

from dtj.api.names import Reason
from dtj.core.actions import Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions, with_conditions
from dtj.core.context import JobContext
from dtj.core.decision import Decision
from dtj.core.messages import first_few
from dtj.core.observed import Pod
from dtj.core.outcome import Failure, Success
from dtj.core.policies import gang, service, ttl
from dtj.core.policies.cleanup import seconds_until_given_up, stop_pods, to_stop
from dtj.core.status import format_time, without_a_guess
from dtj.core.status_update import counted, write


def finish(context: JobContext, outcome: Success | Failure) -> Decision:
    """The one way to end. The outcome is recorded first; the job has ended when all that must stop is gone."""
    waiting = [(pod, seconds_until_given_up(pod, context.job.status, context.now)) for pod in to_stop(context)]
    hanging = [pod for pod, wait in waiting if wait is not None and wait <= 0]
    leftovers = [pod for pod, _ in waiting if pod not in hanging]
    succeeded = isinstance(outcome, Success)
    met = DesiredCondition("True", outcome.reason, outcome.message)
    ready = DesiredCondition("False", Reason.STOPPING_PODS if leftovers else Reason.JOB_FINISHED)
    desired = DesiredConditions(pods_ready=ready, **{"success_criteria_met" if succeeded else "failure_target": met})
    cause = outcome.cause if isinstance(outcome, Failure) else None
    status = counted(context).model_copy(update={"root_cause": cause, "pending_restart": None})
    status = status if succeeded else without_a_guess(status)
    if leftovers:
        waits = [wait for _, wait in waiting if wait is not None and wait > 0]
        again = (RequeueAfter(min(waits)),) if waits else ()
        return write(context, status, desired).then(*stop_pods(context), *again)
    if gang.end(context):
        return write(context, status, desired).then(*gang.end(context))
    if hanging:
        words = f"{outcome.message}; {first_few(map(_place, hanging))} did not stop in time"
        met = replace(met, message=words)
    desired = replace(desired, **{"complete" if succeeded else "failed": met})
    status = status.model_copy(update={"completion_time": format_time(context.now)})
    return Decision.write(with_conditions(context, status, desired)).then(
        Emit("Normal" if succeeded else "Warning", outcome.reason, met.message),
        *((RequeueAfter(0.0),) if service.drop(context) else ()),
        *ttl.kept(context),
    )


def _place(pod: Pod) -> str:
    return f"{pod.name} on node {pod.node}" if pod.node else pod.name
