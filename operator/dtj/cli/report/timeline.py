"""When what ran: replicas and pods as bars on one line of time, and the moments of restarts. Pure.

Replicas of a run here are drawn from the phases that it has recorded, pods of a cluster from their status, and pods
that are gone from the events about them, which an API server keeps for an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from dtj.api.job import Job, form_of, parse_time
from dtj.api.json import JsonObject, condition_of, dig, name_of, objects
from dtj.api.names import Condition, Reason
from dtj.cli.common.formatting import short_time
from dtj.cli.report.evidence import Evidence, replica_named
from dtj.core.context import JobContext
from dtj.core.observed import Pod
from dtj.core.outcome import how_pod_ended
from dtj.core.pod_state import PodState, replica_of, stopped_on_request
from dtj.core.replicas import Replica
from dtj.core.status import true_since
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object


class Look(StrEnum):
    """What a bar means, and the class of its style."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    """After the training, or between its steps: evaluating, exporting, saving before it stops."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended on request, or gone without a record."""


ENDS: Final = (Look.SUCCEEDED, Look.FAILED, Look.STOPPED)

_PHASES: Final[dict[str, Look]] = {
    **dict.fromkeys((PodState.STARTING, "Building"), Look.STARTING),
    **dict.fromkeys((PodState.RUNNING, "Training"), Look.RUNNING),
    **dict.fromkeys((PodState.STOPPING, "Evaluating", "Exporting", "Finishing", "Terminating"), Look.SAVING),
    PodState.SUCCEEDED: Look.SUCCEEDED,
    PodState.FAILED: Look.FAILED,
    PodState.STOPPED: Look.STOPPED,
}
"""By the first words of ``dtj run`` for what a replica does."""


class Bar(NamedTuple):
    """A stretch of time in which something was in one state, in words: ``exited with code 3``."""

    start: datetime
    end: datetime
    look: Look
    words: str


class Row(NamedTuple):
    """One line: a replica or a pod. ``where`` is its node, or that it is gone."""

    name: str
    where: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The rows between the first and the last moment that is drawn.

    ``spans`` are from when to when the job ran, one for each start. The time between two of them takes no room on the
    line of time. ``restarts`` are the moments at which the job, or the run, began once more, each with its reason;
    ``changes`` those at which replicas of an elastic job joined or left the others.
    """

    rows: tuple[Row, ...]
    start: datetime
    end: datetime
    spans: tuple[tuple[datetime, datetime], ...] = ()
    restarts: tuple[tuple[datetime, str], ...] = ()
    changes: tuple[tuple[datetime, str], ...] = ()

    @property
    def pauses(self) -> list[tuple[datetime, datetime]]:
        """From when to when the run did not run between two starts."""
        return [(end, start) for (_, end), (start, _) in pairwise(self.spans) if start > end]

    def elapsed(self, moment: datetime) -> float:
        """Seconds from the start to this moment, without the pauses."""
        paused = (max(0.0, (min(moment, end) - start).total_seconds()) for start, end in self.pauses)
        return (moment - self.start).total_seconds() - sum(paused)

    @property
    def ran_seconds(self) -> float:
        """How long the job ran, in all starts."""
        return sum((end - start).total_seconds() for start, end in self.spans)


def history(evidence: Evidence) -> History | None:
    """The job's life, a run that was resumed as one; None if the job has not begun, as far as is known."""
    jobs = [Job.from_object(body) for body in (*evidence.earlier, evidence.job)]
    spans = [span for job in jobs if (span := _span(job, evidence)) is not None]
    found = (
        _replicas(evidence, spans) if evidence.on_this_machine else (*_pods(evidence), *_gone_pods(evidence, jobs[-1]))
    )
    rows = sorted(found, key=lambda row: (row.bars[0].start, _natural(row.name)))
    times = [*(time for span in spans for time in span), *(t for row in rows for bar in row.bars for t in bar[:2])]
    if not times:
        return None
    resumed = ((start, (start - end).total_seconds()) for (_, end), (start, _) in pairwise(spans))
    restarts = [(start, f"resumed after {short_time(pause)}") for start, pause in resumed]
    restarts += _moments(evidence, Reason.NEW_ATTEMPT)
    status, restarted = jobs[-1].status, parse_time(jobs[-1].status.last_restart_time)
    if status.attempt > 1 and restarted is not None and not restarts:
        restarts.append((restarted, f"attempt {status.attempt}"))
    changes = sorted(_moments(evidence, Reason.MEMBERS_CHANGED))
    return History(tuple(rows), min(times), max(times), tuple(spans), tuple(sorted(restarts)), tuple(changes))


def _moments(evidence: Evidence, reason: Reason) -> list[tuple[datetime, str]]:
    """When something happened to the job, and how it was reported."""
    return [(each.last, each.note) for each in evidence.events if each.reason == reason and each.last is not None]


def _span(job: Job, evidence: Evidence) -> tuple[datetime, datetime] | None:
    """From when to when the job, or this start of it, ran; None if it has not begun."""
    start, suspended = parse_time(job.status.start_time), true_since(job.status, Condition.SUSPENDED)
    over = parse_time(job.status.completion_time) or suspended or evidence.taken_at
    return (start, max(start, over)) if start is not None else None


def _natural(name: str) -> list[tuple[int, str]]:
    """worker-2 before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _replicas(evidence: Evidence, spans: list[tuple[datetime, datetime]]) -> Iterator[Row]:
    """The replicas of a run here, each with what it did in all starts.

    Phases are what was seen now and then, ends of pods are exact: they take the place of those that were seen.
    """
    known: dict[str, list[tuple[datetime, Look, str]]] = {}
    for body, pod, look in _ended(evidence):
        at = _ended_at(body, pod)
        if pod.main_container_ended and at is not None:
            known.setdefault(replica_named(pod.name, job=evidence.name), []).append((at, look, how_pod_ended(pod)))
    exact = frozenset(known)
    for change in evidence.phases:
        look = next((look for word, look in _PHASES.items() if change.phase.startswith(word)), Look.WAITING)
        if look not in ENDS or change.replica not in exact:
            known.setdefault(change.replica, []).append((change.at, look, change.phase.lower()))
    # What was seen before the first start belongs to it: its time is in whole seconds.
    starts = [datetime.min.replace(tzinfo=UTC), *(start for start, _ in spans[1:]), datetime.max.replace(tzinfo=UTC)]
    for replica, changes in known.items():
        bars = [
            bar
            for (_, over), (start, next_start) in zip(spans, pairwise(starts), strict=False)
            for bar in _between(sorted(change for change in changes if start <= change[0] < next_start), over)
        ]
        if bars:
            yield Row(replica, "", tuple(bars))


def _between(changes: list[tuple[datetime, Look, str]], over: datetime) -> Iterator[Bar]:
    """The stretches from one change to the next, and from the last one until it is over."""
    ended = False
    for (at, look, words), end in zip(changes, [*(each[0] for each in changes[1:]), over], strict=False):
        # After an end comes a beginning: anything else was seen too late.
        if not (ended and look in (Look.RUNNING, Look.SAVING)):
            ended = look in ENDS
            yield Bar(at, at if ended else max(at, end), look, words)


def _ended(evidence: Evidence) -> Iterator[tuple[JsonObject, Pod, Look]]:
    """Each pod that is there, and how its end looks if it has one."""
    form = form_of(evidence.job)
    read = [(body, pod_from(pod_from_object(body), form)) for body in evidence.pods]
    on_request = stopped_on_request(pod for _, pod in read)
    for body, pod in read:
        yield body, pod, Look.SUCCEEDED if pod.succeeded else Look.STOPPED if pod.name in on_request else Look.FAILED


def _pods(evidence: Evidence) -> Iterator[Row]:
    """A row for each pod of a replica that is there; TensorBoard outlives its job."""
    ended = list(_ended(evidence))
    outsiders = _outsiders(evidence, (pod for _, pod, _ in ended))
    for body, pod, look in ended:
        if pod.created_at is not None and replica_named(pod.name, job=evidence.name):
            bars = list(_bars(body, pod, pod.created_at, look, now=evidence.taken_at))
            if bars and bars[-1].look is Look.RUNNING and replica_of(pod) in outsiders:
                bars[-1] = bars[-1]._replace(look=Look.WAITING, words="waiting to join the others")
            if bars:  # none of a pod that the cluster's clock made after now
                yield Row(pod.name.removeprefix(f"{evidence.name}-"), pod.node, tuple(bars))


def _outsiders(evidence: Evidence, pods: Iterable[Pod]) -> frozenset[Replica]:
    """The replicas of an elastic job that do not train with the others now."""
    job = Job.from_object(evidence.job)
    return JobContext.seen(job, pods, evidence.taken_at).outsiders if job.spec is not None else frozenset()


def _bars(body: JsonObject, pod: Pod, created: datetime, end: Look, *, now: datetime) -> Iterator[Bar]:
    """The wait for a node, then for images and volumes; what the pod did, or with which look it ended."""
    since = _ran_since(body, pod)
    over = _ended_at(body, pod) or now if pod.main_container_ended else None
    begun = since or over or now
    placed = _changed(body, "PodScheduled")
    if placed is not None and created < placed < begun:
        yield Bar(created, placed, Look.WAITING, "waiting for a node")
        created = placed
    if created < begun:
        yield Bar(created, begun, Look.WAITING, str(pod.blocker.reason) if pod.blocker is not None else "waiting")
    if over is not None:
        yield Bar(since or over, over, end, how_pod_ended(pod))
    elif since is not None:
        # The condition waits for other containers, too.
        ready = (_changed(body, "Ready") or since) if pod.ready else None
        yield Bar(since, ready or now, Look.STARTING, "starting")
        if ready is not None:
            yield Bar(ready, now, Look.RUNNING, "running")


def _gone_pods(evidence: Evidence, job: Job) -> Iterator[Row]:
    """Pods of which only events are left."""
    cause = job.status.root_cause
    known = {name_of(pod) for pod in evidence.pods}
    moments: dict[str, list[datetime]] = {}
    for event in evidence.events:
        if event.last is not None and event.about not in known and replica_named(event.about, job=evidence.name):
            moments.setdefault(event.about, []).append(event.last)
    for name, times in moments.items():
        failed = cause is not None and cause.pod == name
        look, words = (Look.FAILED, "failed") if failed else (Look.STOPPED, "no longer there")
        yield Row(name.removeprefix(f"{evidence.name}-"), "gone", (Bar(min(times), max(times), look, words),))


def _ran_since(body: JsonObject, pod: Pod) -> datetime | None:
    """When the main container of a pod started; None if it has not."""
    if pod.termination is not None:
        return pod.termination.started_at if not pod.termination.init_container else None
    name = pod_from_object(body).main_container
    statuses = objects(dig(body, "status", "containerStatuses"))
    own = next((status for status in statuses if status.get("name") == name), {})
    return parse_time(dig(own, "state", "running", "startedAt"))


def _ended_at(body: JsonObject, pod: Pod) -> datetime | None:
    """When a pod ended; one that was evicted, or refused by its node, may not have run."""
    if pod.termination is not None:
        return pod.termination.finished_at
    changes = (parse_time(each.get("lastTransitionTime")) for each in objects(dig(body, "status", "conditions")))
    return max((at for at in changes if at is not None), default=pod.created_at)


def _changed(body: JsonObject, kind: str) -> datetime | None:
    """Since when a condition of a pod is true."""
    found = condition_of(dig(body, "status"), kind)
    return parse_time(found.get("lastTransitionTime")) if found.get("status") == "True" else None
