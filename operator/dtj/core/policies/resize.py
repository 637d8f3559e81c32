"""Elastic jobs: if the number of workers changes, the members change, or all replicas start again with the new list."""

from __future__ import annotations

from dtj.api.spec import Role
from dtj.core.actions import Decision, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.policies import elastic_members, restart_wait
from dtj.core.policies.attempt import begin_attempt


def resize(context: JobContext) -> Decision | None:
    """Change the members while the pods live, if the launcher can do that. Else begin an attempt with the new number of
    workers; until then the recorded number stays as it is."""
    if elastic_members.in_place(context):
        return elastic_members.change(context)
    how = _resized(context)
    if how is None:
        return None
    unknown = elastic_members.seconds_until_known(context)
    if unknown > 0:
        return Decision.of(RequeueAfter(unknown))
    status = context.job.status
    wait = context.seconds_until(restart_wait.next_attempt(status, context.now))
    return Decision.of(RequeueAfter(wait)) if wait > 0 else begin_attempt(context, "Normal", how, status)


def _resized(context: JobContext) -> str | None:
    """How the number of workers differs from the one that this attempt was started with, if it does.

    As long as nothing of the attempt is there, it simply starts with the new number.
    """
    started = context.job.status.start_time is not None and bool(context.current or context.completed)
    if context.spec.elastic is None or context.job.form.dynamic_workers or not started:
        return None
    for role in (Role.WORKER, Role.PS):
        recorded, wanted = context.job.status.replica_statuses.get(role), context.spec.replicas(role)
        if recorded is not None and recorded.desired != wanted:
            return f"{role}s scaled from {recorded.desired} to {wanted}"
    return None
