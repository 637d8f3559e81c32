"""Stragglers: they are reported, and a slow member of an elastic job may give its place to a spare
(``elastic.onStraggler``).

All members of a collective have the pace of the slowest. Who is slow is found by :mod:`dtj.engine.stragglers`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Reason
from dtj.api.spec import OnStraggler, Role
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.observed import Straggler
from dtj.core.policies import backoff, members
from dtj.core.progress import progress
from dtj.core.replicas import Replica
from dtj.core.status import format_time
from dtj.core.status_update import counted

INTERVAL: Final = timedelta(minutes=10)
"""Least time between two exchanges: each costs a restart in place, and a job that is slow anywhere must not be stirred
without end."""


def replace_slow_member(context: JobContext) -> Decision | None:
    """Exchange the slowest member for a spare. Its next pod is the spare then; that pod is made as after a loss, but
    nothing is charged."""
    slow = _slowest(context)
    if slow is None or context.now < _next(context):
        return None
    following = members.following(context, {slow})
    if following is None or slow in following.members:
        return None  # no spare waits
    status = counted(context)
    counts = backoff.replaced(status, slow, context.now, was_scheduled=True)
    now = {"replica_statuses": counts, "straggler_replaced_time": format_time(context.now)}
    # The next pass tells the others, and then deletes the pod.
    return members.record(context, following, status.model_copy(update=now), *events(context))


def wake_ups(context: JobContext) -> Iterable[RequeueAfter]:
    """When to look again at a member that is slow: nothing else may happen by then."""
    if _slowest(context) is not None and context.now < (due := _next(context)):
        yield RequeueAfter(context.seconds_until(due))


def _slowest(context: JobContext) -> Replica | None:
    """The slowest member that a spare may replace."""
    elastic = context.spec.elastic
    if elastic is None or elastic.on_straggler is not OnStraggler.REPLACE or not members.in_place(context):
        return None
    by_name = {each.hostname: each for each in context.members or () if each.role is Role.WORKER}
    return next((by_name[each.hostname] for each in context.observed.stragglers if each.hostname in by_name), None)


def _next(context: JobContext) -> datetime:
    """When the next exchange may be."""
    latest = parse_time(context.job.status.straggler_replaced_time)
    due = backoff.at_most_later(latest + INTERVAL if latest is not None else None, INTERVAL, context.now)
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
