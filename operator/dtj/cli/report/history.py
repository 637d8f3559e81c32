"""When what ran: attempts and pods as bars on one line of time. Pure.

Pods that are gone are drawn from the events about them, which an API server keeps for an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Final, TypeAlias

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Label, Reason
from dtj.cli.report.evidence import Evidence, began, event_time, replica_named
from dtj.convert.pod_records import pod_from
from dtj.core.outcome import how_pod_ended
from dtj.core.pod_state import main_container_of, stopped_on_request
from dtj.kube.records import pod_from_object

MAX_ROWS: Final = 120
"""Rows that a person looks at; of more pods, those that failed come first."""

_ATTEMPT: Final = re.compile(r"attempt (\d+): ")


_Stretch: TypeAlias = "tuple[datetime, datetime, Look, str]"


class Look(StrEnum):
    """What a bar means, and the class of its style."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended on request, or gone without a record."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which something was in one state, in words: ``exit code 3``."""

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
    def failed(self) -> bool:
        return any(bar.look is Look.FAILED for bar in self.bars)


@dataclass(frozen=True, slots=True)
class History:
    """All rows, and how many more there would have been."""

    rows: tuple[Row, ...]
    left_out: int = 0

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From the first moment to the last; None where nothing is known."""
        bars = [bar for row in self.rows for bar in row.bars]
        return (min(bar.start for bar in bars), max(bar.end for bar in bars)) if bars else None


def history(evidence: Evidence) -> History:
    """The job's life as rows: attempts first, then pods in the order in which they came."""
    job = Job.from_object(evidence.job)
    on_request = stopped_on_request(pod_from(pod_from_object(pod)) for pod in evidence.pods)
    drawn = (_pod_row(pod, job, evidence.taken_at, on_request) for pod in evidence.pods)
    present = [row for row in drawn if row is not None]
    known = {text(dig(pod, "metadata", "name")) for pod in evidence.pods}
    pods = sorted([*present, *_gone_pods(evidence, job, known)], key=lambda row: (row.start, _natural(row.name)))
    kept = sorted(pods, key=lambda row: not row.failed)[:MAX_ROWS]
    attempts = tuple(_attempts(evidence, job))
    return History((*attempts, *(row for row in pods if row in kept)), left_out=len(pods) - len(kept))


# -- attempts ---------------------------------------------------------------------------------------------------


def _attempts(evidence: Evidence, job: Job) -> Iterator[Row]:
    status, now = job.status, evidence.taken_at
    starts = _attempt_starts(evidence, job)
    over = parse_time(status.completion_time) or _suspended_at(job) or now
    numbers = sorted(starts)
    for number, following in pairwise([*numbers, None]):
        assert number is not None
        start = starts[number]
        end = starts[following] if following is not None else max(start, over)
        look, words = (Look.STOPPED, "ended by a restart") if following is not None else _ending(job)
        yield Row(f"attempt {number}", (Bar(start, end, look, words),))


def _attempt_starts(evidence: Evidence, job: Job) -> dict[int, datetime]:
    """By number: from the events, from the pods where those are gone, and from the status."""
    found: dict[int, datetime] = {}

    def note(number: int, moment: datetime | None) -> None:
        if moment is not None:
            found[number] = min(found.get(number, moment), moment)

    for pod in evidence.pods:
        attempt = text(dig(pod, "metadata", "labels", Label.ATTEMPT))
        if attempt.isdecimal():
            note(int(attempt), parse_time(dig(pod, "metadata", "creationTimestamp")))
    for event in evidence.events:
        new_attempt = _ATTEMPT.match(text(event.get("note"))) if event.get("reason") == Reason.NEW_ATTEMPT else None
        if new_attempt is not None:
            note(int(new_attempt[1]), parse_time(began(event)))
    if job.status.attempt == 1:
        note(1, parse_time(job.status.start_time))
    elif job.status.attempt:
        note(job.status.attempt, parse_time(job.status.last_restart_time))
        if found.keys() <= {job.status.attempt}:
            note(1, parse_time(job.status.start_time))
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


def _suspended_at(job: Job) -> datetime | None:
    condition = job.status.condition(Condition.SUSPENDED)
    return parse_time(condition.last_transition_time) if condition is not None and condition.status == "True" else None


# -- pods -------------------------------------------------------------------------------------------------------


def _pod_row(pod: JsonObject, job: Job, now: datetime, on_request: frozenset[str]) -> Row | None:
    created = parse_time(dig(pod, "metadata", "creationTimestamp"))
    if created is None:
        return None
    name = text(dig(pod, "metadata", "name"))
    return Row(_short(name, job), tuple(_bars(*_stretches(pod, created, now, on_request))))


def _stretches(pod: JsonObject, created: datetime, now: datetime, on_request: frozenset[str]) -> tuple[_Stretch, ...]:
    """What a pod did, one after the other."""
    state = _main_state(pod)
    end = dig(state, "terminated")
    if isinstance(end, dict):
        finished = parse_time(end.get("finishedAt")) or now
        # A container that never ran has no start.
        started = min(parse_time(end.get("startedAt")) or finished, finished)
        return (created, started, Look.WAITING, "waiting"), (started, finished, *_pod_end(pod, on_request))
    since = parse_time(dig(state, "running", "startedAt"))
    if since is not None:
        first, ready = (created, since, Look.WAITING, "waiting"), _ready_since(pod)
        if ready is None:
            return first, (since, now, Look.STARTING, "starting")
        return first, (since, ready, Look.STARTING, "starting"), (ready, now, Look.RUNNING, "running")
    if dig(pod, "status", "phase") == "Failed":  # without having run: evicted, refused by its node
        ended = parse_time(_last_transition(pod)) or now
        return ((created, ended, Look.FAILED, how_pod_ended(pod_from(pod_from_object(pod)))),)
    why = text(dig(state, "waiting", "reason")) or _unscheduled(pod) or "waiting"
    return ((created, now, Look.WAITING, why),)


def _bars(*stretches: _Stretch) -> Iterator[Bar]:
    """Those that take any time, and the last in any case."""
    for place, (start, end, look, words) in enumerate(stretches, start=1):
        if end > start or place == len(stretches):
            yield Bar(start, max(start, end), look, words)


def _pod_end(pod: JsonObject, on_request: frozenset[str]) -> tuple[Look, str]:
    known = pod_from(pod_from_object(pod))
    if known.succeeded:
        return Look.SUCCEEDED, how_pod_ended(known)
    return (Look.STOPPED if known.name in on_request else Look.FAILED), how_pod_ended(known)


def _main_state(pod: JsonObject) -> JsonObject:
    name = main_container_of(pod).get("name")
    statuses = objects(dig(pod, "status", "containerStatuses"))
    state = dig(next((status for status in statuses if status.get("name") == name), {}), "state")
    return state if isinstance(state, dict) else {}


def _ready_since(pod: JsonObject) -> datetime | None:
    """When the pod became ready, if it is; our own runner's pods are ready from their start."""
    for condition in objects(dig(pod, "status", "conditions")):
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return parse_time(condition.get("lastTransitionTime")) or parse_time(
                dig(_main_state(pod), "running", "startedAt")
            )
    return None


def _unscheduled(pod: JsonObject) -> str:
    reasons = (
        text(condition.get("reason"))
        for condition in objects(dig(pod, "status", "conditions"))
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    )
    return next(reasons, "")


def _last_transition(pod: JsonObject) -> str:
    return max((text(c.get("lastTransitionTime")) for c in objects(dig(pod, "status", "conditions"))), default="")


def _gone_pods(evidence: Evidence, job: Job, known: set[str]) -> Iterator[Row]:
    """Pods of which only events are left."""
    by_pod: dict[str, list[JsonObject]] = {}
    for event in evidence.events:
        name = text(dig(event, "regarding", "name"))
        if dig(event, "regarding", "kind") == "Pod" and name not in known and replica_named(name, job=job.name):
            by_pod.setdefault(name, []).append(event)
    for name, events in by_pod.items():
        moments = sorted(moment for event in events for moment in _moments(event))
        if not moments:
            continue
        started = next((m for event in events if event.get("reason") == "Started" for m in _moments(event)), None)
        failed = job.status.root_cause is not None and job.status.root_cause.pod == name
        look, words = (Look.FAILED, "failed") if failed else (Look.STOPPED, "no longer there")
        first, last = moments[0], moments[-1]
        bars = _bars((first, started or last, Look.WAITING, "waiting"), (started or last, last, look, words))
        yield Row(_short(name, job), tuple(bars), gone=True)


def _moments(event: JsonObject) -> Iterable[datetime]:
    return [moment for word in (began(event), event_time(event)) if (moment := parse_time(word)) is not None]


def _short(pod: str, job: Job) -> str:
    return pod.removeprefix(f"{job.name}-")


def _natural(name: str) -> list[tuple[int, str]]:
    """worker-2 before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
