"""The priority with which Kueue queues a job: that of the WorkloadPriorityClass that a label names.

The duties are those of Kueue's own kinds of jobs (pkg/controller/jobframework/reconciler.go, UpdateWorkloadPriority).
"""

from __future__ import annotations

from typing import Final

from dtj.api.kueue import PRIORITY_CLASS, priority_class
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Action, BestEffort, Decision, Delete, Emit, ReadPriorityClass, Update
from dtj.core.admission.workloads import admitted, holds_quota, priority_class_fields
from dtj.core.context import JobContext
from dtj.core.observed import GangObject
from dtj.core.status_update import obstructed

_OTHER_CLASS: Final = f"create the class, or change the label {PRIORITY_CLASS} of the job"
"""What to do about a class that cannot be read."""


def priority_class_object(name: str) -> str:
    """How messages name a WorkloadPriorityClass."""
    return f"WorkloadPriorityClass {name}"


def unread(context: JobContext) -> ReadPriorityClass | None:
    """What has to be read before a Workload is made; None if the job names no class, or its value is known."""
    name = priority_class(context.job.labels)
    if not name or name in context.observed.workload_priorities:
        return None
    return ReadPriorityClass(name)


def learn(context: JobContext) -> Decision | None:
    """Read the value before the job is reported to wait, so that the first report names a class that does not exist."""
    first = unread(context)
    if first is None or context.job.prebuilt_workload or context.observed.refusal is not None:
        return None
    return obstructed(context).then(first)


def refused(context: JobContext) -> str:
    """Why the value cannot be read, and what to do; empty unless that is so."""
    refusal = context.observed.refusal
    if refusal is None or refusal.name != priority_class_object(priority_class(context.job.labels)):
        return ""
    return f"{refusal.name}: {refusal.message}: {_OTHER_CLASS}"


def not_followed(name: str, message: str) -> Emit:
    """The event of a job that runs, and whose label now names a class that cannot be read."""
    words = f"{priority_class_object(name)}: {message}: the job keeps its priority: {_OTHER_CLASS}"
    return Emit("Warning", Reason.API_CALL_FAILED, words)


def follow_label(context: JobContext, workload: GangObject) -> tuple[Action, ...]:
    """Give a Workload the class that the label names now, as Kueue does for its own kinds, also if the job runs.

    Kueue refuses to add a class or to take it off once quota is reserved. A Workload without quota is made again if the
    label is gone: then the priority of the pods counts.
    """
    name = priority_class(context.job.labels)
    reserved = holds_quota(workload)
    if not name and workload.priority_class and not reserved:
        return (Delete(workload.api, workload.name, workload.uid),)
    if not name or name == workload.priority_class or (reserved and not workload.priority_class):
        return ()
    first = unread(context)
    if first is not None:
        return (first,)
    spec = {**priority_class_fields(name), "priority": context.observed.workload_priorities[name]}
    return (Update(workload.api, workload.name, {"metadata": {"uid": workload.uid}, "spec": spec}),)


def alongside(context: JobContext, decision: Decision) -> tuple[Action, ...]:
    """The same for a job that is admitted, next to what is decided. It goes on if the class cannot be read."""
    workload, ended = context.gang_object, context.job.status.terminal
    if ended or context.job.prebuilt_workload or workload is None or workload.api.gang is not Gang.KUEUE:
        return ()
    if not admitted(workload) or decision.replaces_gang:
        return ()
    return tuple(
        BestEffort(action) if isinstance(action, ReadPriorityClass) else action
        for action in follow_label(context, workload)
    )
