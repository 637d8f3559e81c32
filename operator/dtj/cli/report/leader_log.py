"""What the log of a leader tells: what was measured, what was done when, and with which versions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import text
from dtj.cli.report.evidence import Log, PhaseChange, Scalar, Setting, replica_named

SPEED: Final = "examples/s"
VALIDATION: Final = "val_"
"""What the name of a metric of held-out examples begins with, as in Keras."""

AT_THE_END: Final = "held_out/"
"""The same of the evaluation after the last step."""

HEAD_BYTES: Final = 2**14
"""How much of a log is read for the versions: the trainer writes this line among its first."""

_SIZES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_STEP: Final = re.compile(r"(?:validation: )?step (\d+)(?:/\d+(?: \(\d+%\))?)?(?:  (.+))?")
_END: Final = re.compile(r"held-out: (.+)")
_PAIR: Final = re.compile(r"([^\s/]+) (-?[\d.]+(?:e[-+]?\d+)?)")
_SPEED: Final = re.compile(r"([\d.]+)([kMG]?) examples/s")
_VERSIONS: Final = re.compile(r"versions: (\S+ \S+(?:, \S+ \S+)*)")
_PHASES: Final = (
    (re.compile(r"start [\d.]+ s: .*"), "Training"),
    (re.compile(r"step (\d+)/\1 .*"), "Evaluating"),
    (re.compile(r"held-out: .*"), "Exporting"),
    (re.compile(r"exported: .*"), "Finishing"),
)
"""Lines of the trainer, and what begins after each."""


def scalars_of(logs: Iterable[Log]) -> tuple[Scalar, ...]:
    """What the leader printed; its earlier incarnations printed theirs before."""
    series = [points for log in logs if (points := list(_scalars(log)))]
    series.sort(key=lambda points: points[0].at.timestamp() if points[0].at is not None else 0.0)
    return tuple(point for points in series for point in points)


def phases_of(logs: Iterable[Log], *, job: str) -> Iterator[PhaseChange]:
    """The phases that logs tell whose lines have times."""
    for log in logs:
        replica = replica_named(log.name, job=job)
        for at, words in _messages(log) if log.stamped and replica else ():
            phase = next((phase for pattern, phase in _PHASES if pattern.fullmatch(words)), None)
            if phase is not None and at is not None:
                yield PhaseChange(replica, phase, at)


def versions_of(head: str) -> Iterator[Setting]:
    """The versions in a log whose lines have times; nothing if another program wrote it."""
    lines = (_VERSIONS.fullmatch(words) for _, words in _messages(Log("", head, stamped=True)))
    found = next(filter(None, lines), None)
    if found is not None:
        yield from (Setting("Versions", *pair.split(" ", 1)) for pair in found[1].split(", "))


def _messages(log: Log) -> Iterator[tuple[datetime | None, str]]:
    """When each line was written, and what it says: itself, or the message of a trainer that logs JSON."""
    for line in log.text.splitlines():
        stamp, _, words = line.partition(" ") if log.stamped else ("", "", line)
        if words.startswith("{"):
            try:
                words = text(json.loads(words).get("message"))
            except (ValueError, RecursionError):
                continue
        yield parse_time(stamp), words.strip()


def _scalars(log: Log) -> Iterator[Scalar]:
    step = 0
    for at, words in _messages(log):
        found, end = _STEP.fullmatch(words), _END.fullmatch(words)
        if found is not None:
            step = int(found[1])
        shown, prefix = (found[2] or "", "") if found is not None else (end[1] if end is not None else "", AT_THE_END)
        for part in shown.split("  "):
            speed, pair = _SPEED.fullmatch(part), _PAIR.fullmatch(part)
            if speed is not None:
                yield Scalar(f"{prefix}{SPEED}", step, _number(speed[1]) * _SIZES[speed[2]], at)
            elif pair is not None and pair[1] not in ("epoch", "ETA"):
                yield Scalar(f"{prefix}{pair[1]}", step, _number(pair[2]), at)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
