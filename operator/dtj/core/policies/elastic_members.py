"""Elastic jobs without new pods: which replicas train together when workers come, go or are lost.

The members are recorded first, then the pods are told, then surplus pods are deleted; the launchers do the rest. What
a lost worker's replacement needs is one rule for all: a pod whose launcher says that it waits becomes a member, as long
as there are fewer than the job wants. So a worker that was given up comes back in the same way as one that ``kubectl
scale`` adds, and one that waits when no place is free is a spare.

A collective stands still while one is lost, so it gives the lost one up. The workers of a ParameterServer job go on
without it, so there only the spec changes the members: its coordinator starts again with another list of workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import COLLECTIVE, JobSpec, RestartScope, Role
from dtj.api.status import JobStatus
from dtj.core.actions import Decision, Emit, RequeueAfter, TellPod
from dtj.core.conditions import DesiredConditions, pods_ready, with_conditions
from dtj.core.context import JobContext
from dtj.core.membership import World
from dtj.core.messages import first_few
from dtj.core.pod_state import replica_of
from dtj.core.policies import restart_wait
from dtj.core.progress import progress
from dtj.core.replicas import TRAINING_ROLES, Replica, possible_members, training_replicas
from dtj.core.status import is_ready, true_since
from dtj.core.status_update import counted

FIRST_WORD: Final = timedelta(seconds=60)
"""By when a launcher has answered for the first time: it is asked each 10 s, and TensorFlow has to be imported."""


AGAIN_AFTER: Final = timedelta(seconds=1)
"""A pod is told twice. A kubelet that looks after the volumes of several pods takes them as they were when it began,
and overlooks for a minute what changes meanwhile."""

_ONCE: Final = " "
"""Ends what a pod is told the first time: the second time is a change, too."""


def in_place(context: JobContext) -> bool:
    """Whether the members of the job can change while its pods live: the launcher says so of itself.

    Until it does, and with images that have none, all replicas start again with new pods.
    """
    if context.world is None:
        return False
    reported = progress(context)
    return reported is not None and reported.world is not None


def seconds_until_known(context: JobContext) -> float:
    """For how long to wait for the launcher's first word, before the pods of a job that runs are taken to have none."""
    if context.world is None or context.leader is None:
        return 0.0
    pod = context.pod_of(context.leader)
    can_be_asked = pod is not None and pod.ip and is_ready(pod)
    since = true_since(context.job.status, Condition.PODS_READY)
    if context.latest_answer is not None or not can_be_asked or since is None:
        return 0.0
    return context.seconds_until(_in_time(context, since, FIRST_WORD))


def spec_for_restarts(context: JobContext) -> JobSpec:
    """The spec that says who restarts with a lost replica: a member of a collective comes back alone if the others can
    go on without it."""
    policy = context.spec.run_policy
    collective = context.spec.strategy in COLLECTIVE
    if not collective or policy.restart_scope is not RestartScope.AUTO or not in_place(context):
        return context.spec
    alone = policy.model_copy(update={"restart_scope": RestartScope.POD})
    return context.spec.model_copy(update={"run_policy": alone})


def change(context: JobContext) -> Decision | None:
    """Record other members than those that train now, if there should be others."""
    world = following(context)
    if world is None:
        return None
    return record(context, world, counted(context))


def record(context: JobContext, following: World, status: JobStatus, *events: Emit) -> Decision:
    """Write ``status`` with the members that follow, and say so after ``events``; the next pass tells the pods."""
    status = status.model_copy(update={"world": following.recorded()})
    desired = DesiredConditions(pods_ready=pods_ready(context, status))
    written = Decision.write(with_conditions(context, status, desired))
    return written.then(*events, announcement(context, following), RequeueAfter(0.0))


def following(context: JobContext, lost: Iterable[Replica] = ()) -> World | None:
    """The members from now on, if they are others than those that train now. ``lost`` are replicas whose loss is not
    recorded yet."""
    world = context.world
    assert world is not None
    if any(replica.role in TRAINING_ROLES for replica in context.completed):
        return None  # the training is over, or all start again: who completed does not come back
    after = _next_members(context, world.members, _lost_workers(context, lost))
    if after == world.members:
        return None
    # A coordinator waits at its start for each worker. Those that are lost now join when they are back.
    at_hand = after - _unready(context)
    if context.spec.strategy not in COLLECTIVE and _enough(context, at_hand):
        after = at_hand
    return world.with_members(after)


def _next_members(context: JobContext, members: frozenset[Replica], lost: frozenset[Replica]) -> frozenset[Replica]:
    """Who of the members stays, and who joins them.

    Replicas that the job does not want any more leave at once, and so does one whose place a spare can take, if it is
    lost or nothing is heard of its node. One whose next pod is not ready leaves after ``elastic.shrinkAfterSeconds``,
    if at least ``elastic.minReplicas`` workers stay. Pods that wait join, as many as there are places. Where there are
    fewer places than workers, those without a ready pod go first.
    """
    places, possible = len(training_replicas(context.spec)), frozenset(possible_members(context.spec))
    stay = members & possible
    stay -= _given_up(context, stay, context.now)
    waiting = sorted(_waiting(context) & possible - members)
    spares = max(0, len(waiting) - max(0, places - len(stay)))
    stay -= frozenset(sorted(stay & lost)[:spares])
    unready = _unready(context)
    kept = sorted(stay, key=lambda replica: (replica in lost, replica in unready, replica))[:places]
    return frozenset((*kept, *waiting[: places - len(kept)]))


def _lost_workers(context: JobContext, lost: Iterable[Replica]) -> frozenset[Replica]:
    """The workers that are lost, by what is recorded or is about to be, and those of whose nodes nothing is heard."""
    recorded = (each for each in _unready(context) if restart_wait.restart_due(context, each) is not None)
    silent = (replica_of(pod) for pod in context.current if pod.silent)
    found = (*lost, *recorded, *silent)
    return frozenset(replica for replica in found if replica is not None and replica.role is Role.WORKER)


def announcement(context: JobContext, following: World) -> Emit:
    """The event that says who joins and who leaves."""
    before, after = context.members or frozenset(), following.members
    moves, wanted = _change_in_words(before, after), len(training_replicas(context.spec))
    message = f"{moves}; {len(after)} of {wanted} replicas train (generation {following.generation})"
    return Emit("Normal", Reason.MEMBERS_CHANGED, message)


def tell(context: JobContext) -> tuple[TellPod, ...]:
    """Tell the pods who are the members, as the status has it, and a second time; those of no later change know it from
    their creation.

    Pods that are deleted next are told nothing: a second request to stop would end their program in the middle of its
    save.
    """
    text = _text(context)
    alive = [pod for pod in context.current if not pod.terminating and not pod.main_container_ended]
    again = context.seconds_until(_again_at(context)) <= 0.0
    return tuple(
        TellPod(pod.name, pod.uid, text, again=True)
        if pod.world == text + _ONCE
        else TellPod(pod.name, pod.uid, text + _ONCE)
        for pod in alive
        if text and pod.world not in ("", text) and (again or pod.world != text + _ONCE)
    )


def wake_ups(context: JobContext) -> tuple[RequeueAfter, ...]:
    """When to tell pods a second time, and to look again for the next pods of lost workers."""
    if not in_place(context):
        return ()
    dues = [due for _, due in _awaited(context)]
    text = _text(context)
    if text and any(pod.world == text + _ONCE for pod in context.current):
        dues.append(_again_at(context))
    return tuple(RequeueAfter(context.seconds_until(due)) for due in dues if context.now < due)


def _text(context: JobContext) -> str:
    """What the pods are told; empty before the first change, which they know from their creation."""
    world = context.world
    if world is None or world.generation == 0:
        return ""
    return world.text(context.job, context.spec, context.platform.network)


def _again_at(context: JobContext) -> datetime:
    """When to tell pods a second time: they were told at once after the status was written."""
    written = context.observed.status_written_at
    return _in_time(context, written, AGAIN_AFTER) if written is not None else context.now


def lost(context: JobContext) -> dict[Replica, datetime | None]:
    """The workers among the members that have no ready pod, and when the others go on without them; None if too few
    workers would stay."""
    members, awaited = context.members or frozenset(), tuple(_awaited(context))
    given_up = {due: _given_up(context, members, due) for due in {due for _, due in awaited}}
    return {replica: due if replica in given_up[due] else None for replica, due in awaited}


def _given_up(context: JobContext, members: frozenset[Replica], at: datetime) -> frozenset[Replica]:
    """The members that need not be waited for any more at a moment, if enough workers train then."""
    given_up = frozenset(replica for replica, due in _awaited(context) if due <= at)
    train = (members - given_up) | (_waiting(context) & frozenset(possible_members(context.spec)))
    return given_up if _enough(context, train) else frozenset()


def _enough(context: JobContext, members: frozenset[Replica]) -> bool:
    """Whether these are as many workers as the job needs."""
    elastic = context.spec.elastic
    assert elastic is not None
    return sum(replica.role is Role.WORKER for replica in members) >= elastic.min_replicas


def _awaited(context: JobContext) -> Iterable[tuple[Replica, datetime]]:
    """The workers of a collective that have no ready pod, in order, and until when the others wait for them."""
    elastic = context.spec.elastic
    assert elastic is not None
    if context.spec.strategy not in COLLECTIVE:
        return
    for replica in sorted(_unready(context)):
        since = restart_wait.restart_due(context, replica) or _unready_since(context)
        if since is not None:
            yield replica, _in_time(context, since, timedelta(seconds=elastic.shrink_after_seconds))


def _in_time(context: JobContext, since: datetime, wait: timedelta) -> datetime:
    """When a wait is over; now, if it began further ahead than it can: the clock was set back."""
    most = wait + restart_wait.LONGEST_RECORDED
    return restart_wait.at_most_later(since + wait, most, context.now) or context.now


def _unready(context: JobContext) -> frozenset[Replica]:
    """The workers among the members that have no ready pod."""
    ready = {replica_of(pod) for pod in context.current if is_ready(pod)}
    return frozenset(r for r in context.members or () if r.role is Role.WORKER and r not in ready)


def _unready_since(context: JobContext) -> datetime | None:
    """Since when not all members are ready that were: a node that dies in silence makes its pods unready, and nobody
    deletes them for minutes. None before all of them were ready once."""
    ready = context.job.status.condition(Condition.PODS_READY)
    if ready is None or ready.status != "False" or not context.was_ready:
        return None
    return parse_time(ready.last_transition_time)


def _waiting(context: JobContext) -> frozenset[Replica]:
    """The replicas whose pods say that they are ready to join."""
    found = (replica_of(pod) for pod in context.current if pod.uid in context.observed.waiting and is_ready(pod))
    return frozenset(replica for replica in found if replica is not None)


def _change_in_words(before: frozenset[Replica], after: frozenset[Replica]) -> str:
    moves = ((after - before, "joins", "join"), (before - after, "leaves", "leave"))
    return " and ".join(
        f"{first_few(replica.hostname for replica in sorted(moved))} {one if len(moved) == 1 else several}"
        for moved, one, several in moves
        if moved
    )
