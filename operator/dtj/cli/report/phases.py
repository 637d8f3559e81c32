"""What a replica did between its start and its end. Pure.

The local runner records the phases. On a cluster they are read from the leader's log, whose lines have times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.cli.report.evidence import Log, PhaseChange, replica_named
from dtj.cli.report.look import Bar, Look
from dtj.cli.report.measured import message_of

TRAINING: Final = "Training"

_LOOKS: Final = {
    "Starting": Look.STARTING,
    "Building": Look.STARTING,
    TRAINING: Look.RUNNING,
    "Running": Look.RUNNING,
    "Evaluating": Look.SAVING,
    "Exporting": Look.SAVING,
    "Finishing": Look.SAVING,
    "Terminating": Look.SAVING,
}
"""By the words of ``dtj run``. What a pod's own status says better, such as Succeeded, is not among them."""

_LINES: Final = (
    (re.compile(r"start [\d.]+ s: .*"), TRAINING),
    (re.compile(r"step (\d+)/\1 .*"), "Evaluating"),
    (re.compile(r"held-out: .*"), "Exporting"),
    (re.compile(r"exported: .*"), "Finishing"),
)
"""Lines of the trainer's log, and what begins after each."""


def phases_of_logs(logs: Iterable[Log], *, job: str) -> tuple[PhaseChange, ...]:
    """The phases that logs tell whose lines have times."""
    return tuple(change for log in logs if log.stamped for change in _phases_of(log, job))


def _phases_of(log: Log, job: str) -> Iterator[PhaseChange]:
    replica = replica_named(log.name, job=job)
    for line in log.text.splitlines() if replica else ():
        stamp, _, words = line.partition(" ")
        words = message_of(words)
        phase = next((phase for pattern, phase in _LINES if pattern.fullmatch(words)), None)
        at = parse_time(stamp) if phase is not None else None
        if phase is not None and at is not None:
            yield PhaseChange(replica, phase, at)


def phase_bars(phases: Iterable[PhaseChange], replica: str, start: datetime, end: datetime) -> tuple[Bar, ...]:
    """What a replica did between two moments, without a gap; empty if no phase of it is known."""
    known = [each for each in phases if each.replica == replica and start <= each.at < end and each.phase in _LOOKS]
    if not known:
        return ()
    ends = [*(each.at for each in known[1:]), end]
    bars = [
        Bar(each.at, until, _LOOKS[each.phase], each.phase.lower()) for each, until in zip(known, ends, strict=True)
    ]
    if known[0].at > start:
        bars.insert(0, Bar(start, known[0].at, Look.STARTING, "starting"))
    return tuple(_joined(bars))


def _joined(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Without the marks between bars that mean the same."""
    before: Bar | None = None
    for bar in bars:
        if before is not None and (bar.look, bar.words) == (before.look, before.words):
            before = Bar(before.start, bar.end, bar.look, bar.words)
            continue
        if before is not None:
            yield before
        before = bar
    if before is not None:
        yield before
