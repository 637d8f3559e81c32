"""When what ran: attempts and pods as bars on one line of time. Pure.

Pods are drawn from their status and from the phases that are known of them; pods that are gone from the events about
them, which an API server keeps for an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Label, Reason
from dtj.cli.report.evidence import Evidence, began, event_time, replica_named
from dtj.core.outcome import how_pod_ended
from dtj.core.pod_state import main_container_of, stopped_on_request
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object

MAX_ROWS: Final = 120
"""Rows that a person looks at; of more pods, those that failed come first."""


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


_PHASES: Final = {
    **dict.fromkeys(("Starting", "Building"), Look.STARTING),
    **dict.fromkeys(("Training", "Running"), Look.RUNNING),
    **dict.fromkeys(("Evaluating", "Exporting", "Finishing", "Terminating"), Look.SAVING),
}
"""By the words of ``dtj run``. What a pod's own status says better, such as Succeeded, is not among them."""

_ATTEMPT: Final = re.compile(r"attempt (\d+): ")


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which something was in one state, in words: ``exited with code 3``."""

    start: datetime
    end: datetime
    look: Look
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line: an attempt or a pod. ``gone`` where it is drawn from events alone."""

    name: str
    bars: tuple[Bar, ...]
    gone: bool = False

    @property
    def start(self) -> datetime:
        return min(bar.start for bar in self.bars)

    @property
    def end(self) -> datetime:
        return max(bar.end for bar in self.bars)


@dataclass(frozen=True, slots=True)
class History:
    """All rows, and how many more there would have been.

    ``pauses`` are the stretches between two starts of a run: they take no room on the line of time. ``restarts`` are
    the moments at which the job, or the run, began once more.
    """

    rows: tuple[Row, ...]
    left_out: int = 0
    pauses: tuple[tuple[datetime, datetime], ...] = ()
    restarts: tuple[datetime, ...] = ()

    def elapsed(self, moment: datetime) -> float:
        """Seconds from the first moment of a row to this one, without the pauses."""
        paused = (max(0.0, (min(moment, end) - start).total_seconds()) for start, end in self.pauses)
        return (moment - min(row.start for row in self.rows)).total_seconds() - sum(paused)

    @property
    def seconds(self) -> float:
        """How long all of it took, without the pauses."""
        return self.elapsed(max(row.end for row in self.rows)) if self.rows else 0.0


def history(evidence: Evidence) -> History:
    """The job's life as rows: attempts first, then pods in the order in which they came.

    A run that was resumed is one life: its starts take the place of attempts, and a replica has one row for all.
    """
    attempts: list[Row] = []
    pods: dict[str, Row] = {}
    spans: list[tuple[datetime, datetime]] = []
    for number, part in enumerate((*evidence.earlier, evidence), start=1):
        own = [*_attempts(part, f"start {number}" if evidence.earlier else "")]
        rows = [*_pod_rows(part)]
        attempts += own
        for row in rows:
            before = pods.get(row.name)
            pods[row.name] = row if before is None else replace(row, bars=(*before.bars, *row.bars))
        if own or rows:
            spans.append((min(row.start for row in (*own, *rows)), max(row.end for row in (*own, *rows))))
    ordered = sorted(pods.values(), key=lambda row: (row.start, _natural(row.name)))
    kept = sorted(ordered, key=lambda row: all(bar.look is not Look.FAILED for bar in row.bars))[:MAX_ROWS]
    return History(
        (*attempts, *(row for row in ordered if row in kept)),
        left_out=len(ordered) - len(kept),
        pauses=tuple((end, start) for (_, end), (start, _) in pairwise(spans) if start > end),
        restarts=tuple(sorted(row.start for row in attempts)[1:]),
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """worker-2 before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


# -- attempts ---------------------------------------------------------------------------------------------------


def _attempts(evidence: Evidence, title: str) -> Iterator[Row]:
    """A row for each attempt; with ``title`` this is one of several starts of a run."""
    job = Job.from_object(evidence.job)
    suspended = job.status.condition(Condition.SUSPENDED)
    since = suspended.last_transition_time if suspended is not None and suspended.status == "True" else None
    over = parse_time(job.status.completion_time) or parse_time(since) or evidence.taken_at
    starts = _attempt_starts(evidence, job)
    for number, following in pairwise([*sorted(starts), 0]):
        start, end = starts[number], starts[following] if following else max(starts[number], over)
        look, words = (Look.STOPPED, "ended by a restart") if following else _ending(job)
        name = ", ".join(filter(None, (title, f"attempt {number}" if not title or number > 1 else "")))
        own = [pod for pod in evidence.pods if text(dig(pod, "metadata", "labels", Label.ATTEMPT)) == str(number)]
        ran = min((moment for pod in own if (moment := _ran_since(pod)) is not None), default=start)
        if not start < ran < end:
            yield Row(name, (Bar(start, end, look, words),))
            continue
        waited = Bar(start, ran, Look.WAITING, "pending" if number == 1 else "restarting")
        yield Row(name, (waited, Bar(ran, end, look, words)))


def _attempt_starts(evidence: Evidence, job: Job) -> dict[int, datetime]:
    """By number: from the events, from the pods where those are gone, and from the status."""
    status = job.status
    seen: list[tuple[int, datetime | None]] = []
    for pod in evidence.pods:
        attempt = text(dig(pod, "metadata", "labels", Label.ATTEMPT))
        if attempt.isdecimal():
            seen.append((int(attempt), parse_time(dig(pod, "metadata", "creationTimestamp"))))
    for event in evidence.events:
        new_attempt = _ATTEMPT.match(text(event.get("note"))) if event.get("reason") == Reason.NEW_ATTEMPT else None
        if new_attempt is not None:
            seen.append((int(new_attempt[1]), parse_time(began(event))))
    if status.attempt > 1:
        seen.append((status.attempt, parse_time(status.last_restart_time)))
    if status.attempt == 1 or (
        status.attempt and {number for number, at in seen if at is not None} <= {status.attempt}
    ):
        seen.append((1, parse_time(status.start_time)))
    found: dict[int, datetime] = {}
    for number, at in seen:
        if at is not None:
            found[number] = min(found.get(number, at), at)
    return found


def _ending(job: Job) -> tuple[Look, str]:
    status = job.status
    if status.is_true(Condition.COMPLETE):
        return Look.SUCCEEDED, "succeeded"
    if status.is_true(Condition.FAILED):
        return Look.FAILED, "failed"
    if status.is_true(Condition.SUSPENDED):
        return Look.STOPPED, "suspended"
    # A run on this machine that was stopped before the job had an end of its own.
    return Look.STOPPED if status.completion_time else Look.RUNNING, status.state


# -- pods -------------------------------------------------------------------------------------------------------


def _pod_rows(evidence: Evidence) -> Iterator[Row]:
    """A row for each pod, those of which only events or phases are known too."""
    job = Job.from_object(evidence.job)
    on_request = stopped_on_request(pod_from(pod_from_object(pod)) for pod in evidence.pods)
    rows = []
    for pod in evidence.pods:
        created = parse_time(dig(pod, "metadata", "creationTimestamp"))
        if created is not None:
            bars = (*_before_start(pod, created, evidence.taken_at), *_since_start(pod, created, evidence, on_request))
            rows.append(Row(_name(pod).removeprefix(f"{job.name}-"), _not_empty(bars)))
    rows += _gone_pods(evidence, job)
    yield from rows or _rows_of_phases(evidence, job)


def _before_start(pod: JsonObject, created: datetime, now: datetime) -> Iterator[Bar]:
    """The wait for a node, and then for images and volumes."""
    state = _main_state(pod)
    # A container that never ran has an end and no start.
    until = _ran_since(pod) or parse_time(dig(state, "terminated", "finishedAt"))
    if until is None and dig(pod, "status", "phase") == "Failed":
        until = created
    if until is None:
        unplaced = text(_condition(pod, "PodScheduled", "False").get("reason"))
        yield Bar(created, now, Look.WAITING, text(dig(state, "waiting", "reason")) or unplaced or "waiting")
        return
    placed = parse_time(_condition(pod, "PodScheduled", "True").get("lastTransitionTime"))
    if placed is not None and created < placed < until:
        yield Bar(created, placed, Look.WAITING, "waiting for a node")
        created = placed
    yield Bar(created, until, Look.WAITING, "waiting")


def _since_start(pod: JsonObject, created: datetime, evidence: Evidence, on_request: frozenset[str]) -> Iterator[Bar]:
    """What a pod did from the start of its main container on, and how it ended."""
    since, now = _ran_since(pod), evidence.taken_at
    replica = replica_named(_name(pod), job=evidence.name)
    known = pod_from(pod_from_object(pod))
    stopped = known.name in on_request
    look = Look.SUCCEEDED if known.succeeded else Look.STOPPED if stopped else Look.FAILED
    if dig(_main_state(pod), "terminated") is not None:
        finished = parse_time(dig(_main_state(pod), "terminated", "finishedAt")) or now
        begun = min(since or finished, finished)
        phases = _phase_bars(evidence, replica, begun, finished)
        yield from phases
        yield Bar(finished if phases else begun, finished, look, how_pod_ended(known))
    elif since is not None:
        phases = _phase_bars(evidence, replica, since, now)
        yield from phases
        if not phases:
            condition = _condition(pod, "Ready", "True")
            # Our own runner's pods are ready from their start.
            ready = (parse_time(condition.get("lastTransitionTime")) or since) if condition else None
            yield Bar(since, ready or now, Look.STARTING, "starting")
            if ready is not None:
                yield Bar(ready, now, Look.RUNNING, "running")
    elif dig(pod, "status", "phase") == "Failed":  # without having run: evicted, refused by its node
        changes = (text(c.get("lastTransitionTime")) for c in objects(dig(pod, "status", "conditions")))
        yield Bar(created, parse_time(max(changes, default="")) or now, look, how_pod_ended(known))


def _phase_bars(evidence: Evidence, replica: str, start: datetime, end: datetime) -> tuple[Bar, ...]:
    """What a replica did between two moments, without a gap; empty if no phase of it is known."""
    known = [
        (each.at, _PHASES[each.phase], each.phase.lower())
        for each in evidence.phases
        if each.replica == replica and start <= each.at < end and each.phase in _PHASES
    ]
    if known and known[0][0] > start:
        known.insert(0, (start, Look.STARTING, "starting"))
    joined = [next(same) for _, same in groupby(known, key=lambda each: each[1:])]
    ends = [*(at for at, _, _ in joined[1:]), end]
    return tuple(Bar(at, until, look, words) for (at, look, words), until in zip(joined, ends, strict=False))


def _rows_of_phases(evidence: Evidence, job: Job) -> Iterator[Row]:
    """The replicas of a start of a run of which there is no other record: it still runs, or was killed."""
    start, end = parse_time(job.status.start_time), parse_time(job.status.completion_time) or evidence.taken_at
    for replica in dict.fromkeys(change.replica for change in evidence.phases):
        bars = _phase_bars(evidence, replica, start, end) if start is not None else ()
        if bars:
            ended = (Bar(end, end, Look.STOPPED, "stopped"),) if job.status.completion_time else ()
            yield Row(replica, (*bars, *ended))


def _gone_pods(evidence: Evidence, job: Job) -> Iterator[Row]:
    """Pods of which only events are left."""
    known = {_name(pod) for pod in evidence.pods}
    moments: dict[str, list[datetime]] = {}
    started: dict[str, datetime] = {}
    for event in evidence.events:
        name = text(dig(event, "regarding", "name"))
        if dig(event, "regarding", "kind") == "Pod" and name not in known and replica_named(name, job=job.name):
            found = [at for word in (began(event), event_time(event)) if (at := parse_time(word)) is not None]
            moments.setdefault(name, []).extend(found)
            if event.get("reason") == "Started" and found:
                started.setdefault(name, found[0])
    for name, times in moments.items():
        if not times:
            continue
        failed = job.status.root_cause is not None and job.status.root_cause.pod == name
        look, words = (Look.FAILED, "failed") if failed else (Look.STOPPED, "no longer there")
        first, last = min(times), max(times)
        since = started.get(name, last)
        bars = (Bar(first, since, Look.WAITING, "waiting"), Bar(since, last, look, words))
        yield Row(name.removeprefix(f"{job.name}-"), _not_empty(bars), gone=True)


def _not_empty(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    """Those that take any time, and the last in any case."""
    *most, last = bars
    return (*(bar for bar in most if bar.end > bar.start), replace(last, end=max(last.start, last.end)))


def _name(pod: JsonObject) -> str:
    return text(dig(pod, "metadata", "name"))


def _main_state(pod: JsonObject) -> JsonObject:
    name = main_container_of(pod).get("name")
    statuses = objects(dig(pod, "status", "containerStatuses"))
    state = dig(next((status for status in statuses if status.get("name") == name), {}), "state")
    return state if isinstance(state, dict) else {}


def _ran_since(pod: JsonObject) -> datetime | None:
    """When its main container started; None if it has not."""
    state = _main_state(pod)
    return parse_time(dig(state, "terminated", "startedAt")) or parse_time(dig(state, "running", "startedAt"))


def _condition(pod: JsonObject, kind: str, status: str) -> JsonObject:
    """This condition of a pod if it has this status; else an empty one."""
    conditions = objects(dig(pod, "status", "conditions"))
    return next((each for each in conditions if (each.get("type"), each.get("status")) == (kind, status)), {})
