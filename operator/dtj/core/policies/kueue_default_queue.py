"""The default queue: a job that names no queue waits in the LocalQueue of its namespace that is named ``default``.

Kueue decides it for the jobs that it knows when they are created (pkg/controller/jobframework/defaults.go). Here it is
decided before the job's first pods, and recorded in its status: a queue that is created or deleted later changes
nothing.
"""

from __future__ import annotations

from dtj.api.kueue import leaves_queue_open
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Decision, LookForGangs, ReadDefaultQueue, RequeueAfter
from dtj.core.admission.scheduler_choice import LOOK_AGAIN, looked_long_ago, served
from dtj.core.admission.workloads import DEFAULT_QUEUE
from dtj.core.context import JobContext
from dtj.core.status import is_over
from dtj.core.status_update import obstructed
from dtj.core.validity import Problem


def choose(context: JobContext) -> Decision | None:
    """Ask what has to be known, and record the queue; None if there is nothing to decide, or no such queue."""
    if context.forgotten_queue:
        return _record(context, context.forgotten_queue)
    if not _is_open(context):
        return None
    found = context.observed.gangs
    if found is None or (not context.own and looked_long_ago(found, context.now)):
        return obstructed(context).then(LookForGangs())
    has_kueue = Gang.KUEUE in found.failing or served(Gang.KUEUE, found) is not None
    if not has_kueue or _runs_without(context):
        return None
    known = context.observed.default_queue
    if known is None or is_over(known.at, LOOK_AGAIN, context.now):
        return obstructed(context).then(ReadDefaultQueue())
    return _record(context, DEFAULT_QUEUE) if known.found else None


def problems(context: JobContext) -> tuple[Problem, ...]:
    """Why a job that names no queue cannot start."""
    if not _is_open(context) or _runs_without(context):
        return ()
    known = context.observed.default_queue
    if known is not None and known.denied:
        message = (
            f"runPolicy.scheduling: the operator may not ask whether the namespace {context.job.namespace} has a "
            f"LocalQueue {DEFAULT_QUEUE}: grant it get on localqueues of kueue.x-k8s.io, or set queue ({known.denied})"
        )
        return (Problem(Reason.GANG_UNAVAILABLE, message),)
    if known is None or known.found or context.spec.scheduling.gang is not Gang.KUEUE:
        return ()
    message = (
        f"runPolicy.scheduling: Kueue needs a LocalQueue: set queue, or create the LocalQueue {DEFAULT_QUEUE} in the "
        f"namespace {context.job.namespace}"
    )
    return (Problem(Reason.GANG_UNAVAILABLE, message),)


def _is_open(context: JobContext) -> bool:
    """Whether the job names no queue, has been given none, and has never begun as its status says. A status that says
    that Kueue admitted the job has lost the queue.

    A Workload that MultiKueue has made names the queue of the job.
    """
    status, job = context.job.status, context.job
    begun = (status.attempt > 0 or status.start_time is not None) and status.gang != Gang.KUEUE
    named = status.queue or job.prebuilt_workload or context.dispatched
    return not (begun or named) and job.spec is not None and leaves_queue_open(job.spec)


def _runs_without(context: JobContext) -> bool:
    """Whether there are pods that Kueue did not admit. They run on."""
    return bool(context.own) and context.job.status.gang != Gang.KUEUE


def _record(context: JobContext, queue: str) -> Decision:
    return Decision.write(context.job.status.model_copy(update={"queue": queue})).then(RequeueAfter(0.0))
