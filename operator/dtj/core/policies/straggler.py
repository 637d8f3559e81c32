"""Stragglers, replicas that are slower than their peers: they are reported, and a slow member of an elastic job may
give its place to a spare (``elastic.onStraggler``).

All members of a collective have the pace of the slowest, and only a replica itself knows how long its own part of a
step takes (``stepSeconds``). Else the time between its steps is used. :mod:`dtj.engine.step_timings` asks the replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Reason
from dtj.api.spec import OnStraggler, Role
from dtj.api.status import MAX_STRAGGLERS
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.observed import Straggler
from dtj.core.policies import elastic_members, restart_wait
from dtj.core.progress import progress
from dtj.core.replicas import Replica
from dtj.core.status import format_time
from dtj.core.status_update import counted

FACTOR: Final = 1.5
"""So much longer than the median a slow replica's steps take."""

MIN_REPLICAS: Final = 3
"""Replicas without which there is no median to speak of."""

READINGS: Final = 3
"""In this many readings in a row a replica must be slow to be named."""

MIN_STEPS: Final = 10
"""Steps that the median replica must do between two readings: of fewer, the time is not known well."""

INTERVAL: Final = timedelta(minutes=10)
"""Least time between two exchanges: each costs a restart in place, and a job that is slow anywhere must not be stirred
without end."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pod reported: ``at`` in seconds of any clock that is the same for all."""

    at: float
    step: int | None
    step_seconds: float | None


def slow(before: Mapping[str, Reading], now: Mapping[str, Reading], *, in_step: bool) -> tuple[Straggler, ...]:
    """Those of ``now`` that are slow, the slowest first. Keys are host names; ``in_step`` is whether all go at one
    pace."""
    seconds = {name: reading.step_seconds for name, reading in now.items() if reading.step_seconds is not None}
    if len(seconds) < MIN_REPLICAS and not in_step:
        seconds = _between_steps(before, now)
    if len(seconds) < MIN_REPLICAS:
        return ()
    usual = median(seconds.values())
    found = (Straggler(name, own / usual) for name, own in seconds.items() if own > FACTOR * usual > 0)
    return tuple(sorted(found, key=lambda straggler: -straggler.times))


def _between_steps(before: Mapping[str, Reading], now: Mapping[str, Reading]) -> dict[str, float]:
    """Seconds of a step since the last reading; of who did none, the whole time: it takes no less."""
    steps: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for name, reading in now.items():
        earlier = before.get(name)
        if earlier is None or reading.step is None or earlier.step is None or reading.step < earlier.step:
            continue
        steps[name] = reading.step - earlier.step
        seconds[name] = (reading.at - earlier.at) / max(steps[name], 1)
    enough = len(steps) >= MIN_REPLICAS and median(steps.values()) >= MIN_STEPS
    return seconds if enough else {}


def streaks(before: Mapping[str, int], found: Iterable[Straggler]) -> dict[str, int]:
    """By host name: in how many readings in a row a replica was slow, this one included."""
    return {straggler.hostname: before.get(straggler.hostname, 0) + 1 for straggler in found}


def lasting(found: Iterable[Straggler], in_a_row: Mapping[str, int]) -> tuple[Straggler, ...]:
    """Those that have been slow long enough to be named, as many as the status holds."""
    return tuple(each for each in found if in_a_row.get(each.hostname, 0) >= READINGS)[:MAX_STRAGGLERS]


def replace_slow_member(context: JobContext) -> Decision | None:
    """Exchange the slowest member for a spare. Its next pod is the spare then; that pod is made as after a loss, but
    nothing is charged."""
    slow = _slowest(context)
    if slow is None or context.now < _next(context):
        return None
    following = elastic_members.following(context, {slow})
    if following is None or slow in following.members:
        return None  # no spare waits
    status = counted(context)
    counts = restart_wait.replaced(status, {slow: restart_wait.NextPod(context.now)})
    now = {"replica_statuses": counts, "straggler_replaced_time": format_time(context.now)}
    # The next pass tells the others, and then deletes the pod.
    return elastic_members.record(context, following, status.model_copy(update=now), *events(context))


def wake_ups(context: JobContext) -> Iterable[RequeueAfter]:
    """When to look again at a member that is slow: nothing else may happen by then."""
    if _slowest(context) is not None and context.now < (due := _next(context)):
        yield RequeueAfter(context.seconds_until(due))


def _slowest(context: JobContext) -> Replica | None:
    """The slowest member that a spare may replace."""
    elastic = context.spec.elastic
    if elastic is None or elastic.on_straggler is not OnStraggler.REPLACE or not elastic_members.in_place(context):
        return None
    by_name = {each.hostname: each for each in context.members or () if each.role is Role.WORKER}
    return next((by_name[each.hostname] for each in context.observed.stragglers if each.hostname in by_name), None)


def _next(context: JobContext) -> datetime:
    """When the next exchange may be."""
    latest = parse_time(context.job.status.straggler_replaced_time)
    due = restart_wait.at_most_later(latest + INTERVAL if latest is not None else None, INTERVAL, context.now)
    return due or context.now


def events(context: JobContext) -> tuple[Emit, ...]:
    """An event for each slow replica that the status does not list yet, and is about to."""
    before, now = context.job.status.progress, progress(context)
    known = before.stragglers if before is not None else ()
    listed = now.stragglers if now is not None else ()
    new = (s for s in context.observed.stragglers if s.hostname in listed and s.hostname not in known)
    return tuple(_event(context, straggler) for straggler in new)


def _event(context: JobContext, straggler: Straggler) -> Emit:
    node = next((pod.node for pod in context.current if f"{pod.role}-{pod.index}" == straggler.hostname), "")
    words = (
        f"{straggler.hostname} is slower than the others: its steps take {straggler.times:.1f} times as long as "
        f"the median" + (f"; look at node {node}" if node else "")
    )
    return Emit("Warning", Reason.STRAGGLING, words)
