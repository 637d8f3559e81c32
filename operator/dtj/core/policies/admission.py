"""Gangs: which scheduler learns of the job, and what happens to a gang that cannot be complete."""

from __future__ import annotations

from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import object_at
from dtj.api.kueue import priority_class
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang
from dtj.core.actions import (
    Action,
    BestEffort,
    Create,
    Decision,
    Delete,
    DeletePod,
    Emit,
    LookForGangs,
    RequeueAfter,
    Update,
)
from dtj.core.admission import scheduler_choice, schedulers, tfjobs
from dtj.core.conditions import DesiredCondition, DesiredConditions
from dtj.core.context import JobContext
from dtj.core.observed import GangApi
from dtj.core.pod_creation import FirstPods
from dtj.core.policies import clean_pod_policy, kueue_default_queue
from dtj.core.status import all_together
from dtj.core.status_update import counted, obstructed, write
from dtj.core.validity import Problem

_REPAIRED_WITHIN: Final = 3600.0
"""Seconds after the end of a job in which a scheduler that is missing is still looked for."""


def discover(context: JobContext) -> Decision | None:
    """Ask which gang schedulers the cluster has, if the next step depends on that and the answer is missing or old.

    A scheduler may have been removed since: its PodGroup or Workload cannot be created then.
    """
    scheduling, found = context.spec.run_policy.scheduling, context.observed.gangs
    if scheduling is None or scheduling.gang is Gang.NONE:
        return None
    lacks_group = context.gang is not None and context.gang_object is None
    doubted = _waits(context) or (lacks_group and bool(context.observed.obstacle))
    unsettled = found is None or (doubted and scheduler_choice.looked_long_ago(found, context.now))
    if not unsettled:
        return None
    # The status of a job that runs in another cluster is written there.
    before = Decision() if context.dispatched else obstructed(context)
    return before.then(LookForGangs())


def problems(context: JobContext) -> tuple[Problem, ...]:
    """Why there is no gang scheduler that the job could use. A run that began with one goes on; while the API of that
    one fails, it gets no new pods."""
    if isinstance(context.gang_choice, Problem):
        begun = context.job.status.start_time is not None
        return () if begun and not context.missing else (context.gang_choice,)
    if found := tfjobs.problems(context.job):
        return found
    return kueue_default_queue.problems(context)


def fit(context: JobContext) -> tuple[Action, ...]:
    """Make the PodGroup or Workload fit the job; if its API allows no such change, it is created again when it is
    gone."""
    found = context.gang_object
    if found is None or found.terminating:
        return ()
    patch = schedulers.resize(context.group(found.api))
    if patch is None:
        return drop(context)
    return (Update(found.api, found.name, {**patch, "metadata": {**object_at(patch, "metadata"), "uid": found.uid}}),)


def look_again(context: JobContext) -> tuple[RequeueAfter, ...]:
    """A scheduler may be installed or repaired at any time, and no event reports that."""
    return (RequeueAfter(scheduler_choice.LOOK_AGAIN.total_seconds()),) if _waits(context) else ()


def _waits(context: JobContext) -> bool:
    """Whether something is wrong with the gang scheduler that the job asks for, or began with."""
    return isinstance(context.gang_choice, Problem) or bool(problems(context))


def name(context: JobContext) -> str:
    """The scheduler that the status names; empty if the job does not ask for any."""
    if context.spec.run_policy.scheduling is None:
        return ""
    return str(context.gang.gang if context.gang is not None else Gang.NONE)


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the PodGroup or Workload."""
    api = context.gang
    return (new_gang(context, api),) if api is not None and context.gang_object is None else ()


def new_gang(context: JobContext, api: GangApi) -> Create:
    """What creates the PodGroup or Workload by which ``api`` knows this job."""
    verdict = context.template_verdict
    of_pods = verdict.priority if verdict is not None else None
    priority = context.observed.workload_priorities.get(priority_class(context.job.labels), of_pods)
    return Create(api, schedulers.manifest(context.group(api), FirstPods(context), priority=priority))


def drop(context: JobContext) -> tuple[Delete, ...]:
    """Delete the PodGroup or Workload: nothing need be held for this job any more."""
    found = context.gang_object
    if found is None or found.terminating:
        return ()
    return (Delete(found.api, found.name, found.uid),)


def end(context: JobContext) -> tuple[Delete, ...]:
    """Delete the PodGroup of a job that ends. Kueue keeps its Workload, which shows the end, and goes with the job."""
    found = context.gang_object
    return () if found is not None and found.api.gang is Gang.KUEUE else drop(context)


def find_after_the_end(context: JobContext) -> Decision | None:
    """Look for the gang APIs once, so that what the job of an earlier operator left is finished: a PodGroup is deleted,
    and a Workload learns of the end. Look again while the API fails."""
    status, scheduling, found = context.job.status, context.spec.run_policy.scheduling, context.observed.gangs
    named = scheduling is not None and scheduling.queue is not None and not status.gang
    asked = named or status.gang not in ("", Gang.NONE)
    unknown = found is None or (_is_cut_off(context) and scheduler_choice.looked_long_ago(found, context.now))
    return Decision.of(LookForGangs()) if asked and unknown else None


def _is_cut_off(context: JobContext) -> bool:
    """Whether the scheduler that the job began with cannot be used now: its API fails, or is missing or not allowed
    shortly after the end, as a scheduler that was removed would be for ever."""
    found, status = context.observed.gangs, context.job.status
    if found is None:
        return False
    if status.gang in found.failing:
        return True
    ended = parse_time(status.completion_time)
    recently = ended is not None and (context.now - ended).total_seconds() < _REPAIRED_WITHIN
    return recently and isinstance(scheduler_choice.kept(status.gang, found), Problem)


def find_unreadable(context: JobContext) -> tuple[LookForGangs, ...]:
    """Look for the gang APIs once if the manifest of a job cannot be read, which may have a Workload of an earlier
    operator."""
    unknown = context.observed.gangs is None and context.job.status.gang in ("", Gang.KUEUE)
    return (LookForGangs(),) if unknown else ()


def after_the_end(context: JobContext) -> tuple[Action, ...]:
    """The PodGroup goes with the end of the job. The end does not wait for it: an upgrade of the cluster may have taken
    its API away, or an administrator the right to it."""
    if not context.job.status.terminal or not clean_pod_policy.has_stopped(context):
        return ()
    again = (RequeueAfter(scheduler_choice.LOOK_AGAIN.total_seconds()),) if _is_cut_off(context) else ()
    return (*map(BestEffort, end(context)), *again)


def release_incomplete(context: JobContext) -> Decision | None:
    """Stop the pods of a gang that cannot be complete because the API server refuses some of them.

    Two such jobs could wait for each other's quota forever. It is recorded first, so that these ends are never taken
    for failures.
    """
    ready = context.job.status.condition(Condition.PODS_READY)
    giving_back = ready is not None and ready.reason == Reason.GANG_RELEASED
    # Between the end of a container and the disappearance of its pod it still counts as one that was asked to stop.
    holding = [pod for pod in context.current if not pod.all_containers_ended or pod.terminating]
    refusal = context.observed.refusal
    begins = refusal is not None and context.gang is not None and not _is_complete(context, context.gang)
    if not holding or not (giving_back or begins):
        return None
    if giving_back:
        return Decision.of(*(DeletePod(pod.name, pod.uid) for pod in holding if not pod.terminating))
    assert refusal is not None
    message = (
        f"{refusal.name}: {refusal.message}; the other {len(holding)} pods of the gang were deleted so that they hold "
        "no resources; the operator creates all pods again later"
    )
    desired = DesiredConditions(pods_ready=DesiredCondition("False", Reason.GANG_RELEASED, message))
    status = counted(context)
    status = status.model_copy(update={"replica_statuses": all_together(status.replica_statuses)})
    changed = write(context, status, desired)
    return changed.if_written(Emit("Warning", Reason.GANG_RELEASED, message)).then(RequeueAfter(0.0))


def _is_complete(context: JobContext, api: GangApi) -> bool:
    """Whether the gang has what it needs to run: its scheduler has placed pods, and places none before.

    Kueue leaves the placing to a scheduler that knows of no gang: there all pods must have been ready.
    """
    return context.was_ready if api.gang is Gang.KUEUE else context.any_pod_scheduled
