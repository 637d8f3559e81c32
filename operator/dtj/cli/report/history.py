"""When what ran: attempts and pods as bars on one line of time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.json import dig, text
from dtj.api.names import Condition, Label, Reason
from dtj.cli.report.evidence import EarlierPart, Evidence, began
from dtj.cli.report.look import Bar, History, Look, Row
from dtj.cli.report.pod_rows import pod_rows, ran_since

MAX_ROWS: Final = 120
"""Rows that a person looks at; of more pods, those that failed come first."""

_ATTEMPT: Final = re.compile(r"attempt (\d+): ")


def history(evidence: Evidence) -> History:
    """The job's life as rows: attempts first, then pods in the order in which they came.

    A run that was resumed is one life: its starts take the place of attempts, and a replica has one row for all.
    """
    parts = _parts(evidence)
    attempts: list[Row] = []
    pods: dict[str, Row] = {}
    spans: list[tuple[datetime, datetime]] = []
    for number, part in enumerate(parts, start=1):
        own = [*_attempts(part, f"start {number}" if len(parts) > 1 else "")]
        rows = [*pod_rows(part)]
        attempts += own
        for row in rows:
            before = pods.get(row.name)
            pods[row.name] = row if before is None else replace(row, bars=(*before.bars, *row.bars))
        if own or rows:
            spans.append((min(row.start for row in (*own, *rows)), max(row.end for row in (*own, *rows))))
    ordered = sorted(pods.values(), key=lambda row: (row.start, _natural(row.name)))
    kept = sorted(ordered, key=lambda row: not row.failed)[:MAX_ROWS]
    return History(
        (*attempts, *(row for row in ordered if row in kept)),
        left_out=len(ordered) - len(kept),
        pauses=tuple((end, start) for (_, end), (start, _) in pairwise(spans) if start > end),
        restarts=tuple(sorted(row.start for row in attempts)[1:]),
    )


def _parts(evidence: Evidence) -> tuple[Evidence, ...]:
    """One evidence for each start of the run."""
    return (*(_part(evidence, part) for part in evidence.earlier), evidence)


def _part(evidence: Evidence, part: EarlierPart) -> Evidence:
    over = parse_time(Job.from_object(part.job).status.completion_time) or evidence.taken_at
    return replace(evidence, job=part.job, pods=part.pods, events=part.events, earlier=(), taken_at=over)


# -- attempts ---------------------------------------------------------------------------------------------------


def _attempts(evidence: Evidence, title: str) -> Iterator[Row]:
    """A row for each attempt; with ``title`` this is one of several starts of a run."""
    job = Job.from_object(evidence.job)
    status, now = job.status, evidence.taken_at
    starts = _attempt_starts(evidence, job)
    over = parse_time(status.completion_time) or _suspended_at(job) or now
    numbers = sorted(starts)
    for number, following in pairwise([*numbers, None]):
        assert number is not None
        start = starts[number]
        end = starts[following] if following is not None else max(start, over)
        look, words = (Look.STOPPED, "ended by a restart") if following is not None else _ending(job)
        name = ", ".join(filter(None, (title, f"attempt {number}" if not title or number > 1 else "")))
        waited = [*_before_it_ran(evidence, number, start, end)]
        yield Row(name, (*waited, Bar(waited[-1].end if waited else start, end, look, words)))


def _before_it_ran(evidence: Evidence, number: int, start: datetime, end: datetime) -> Iterator[Bar]:
    """The wait for the first pod of an attempt to run, if that is known."""
    own = [pod for pod in evidence.pods if text(dig(pod, "metadata", "labels", Label.ATTEMPT)) == str(number)]
    ran = min((moment for pod in own if (moment := ran_since(pod)) is not None), default=None)
    if ran is not None and start < ran < end:
        yield Bar(start, ran, Look.WAITING, "pending" if number == 1 else "restarting")


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


def _natural(name: str) -> list[tuple[int, str]]:
    """worker-2 before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
