"""What was found out about a job, what the log of its leader tells, and what could not be found out. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.spec import Role

LOG_LINES: Final = 5000
LOG_BYTES: Final = 2**20
"""How much of each log is taken, from its end."""

_POD_NAME: Final = re.compile(rf"((?:{'|'.join(Role)})-\d+)(?:-r\d+)?")


@dataclass(frozen=True, slots=True)
class Log:
    """The end of one log. ``name`` says whose, such as ``digits-worker-0``; with ``stamped`` each line begins with its
    time, as an API server writes it."""

    name: str
    text: str
    stamped: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that was measured at a step; ``at`` is when, where that is known."""

    name: str
    step: int
    value: float
    at: datetime | None


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A replica, such as worker-0, began something at this moment: ``Training``."""

    replica: str
    phase: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that the job ran with, such as a version; ``group`` says what kind of thing it is."""

    group: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that would have belonged here, and why it is not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One job at one moment.

    ``source`` says where it was found. ``objects`` is what else the cluster has of it, such as its Service, and
    ``texts`` what others found out, both by the name of the file that shall hold it. Pods that are gone are there where
    the source remembers them. ``earlier`` are the starts before this one of a run that was resumed, oldest first, each
    with its job, pods and events as they were at its end.
    """

    source: str
    taken_at: datetime
    job: JsonObject
    pods: tuple[JsonObject, ...] = ()
    events: tuple[JsonObject, ...] = ()
    objects: dict[str, tuple[JsonObject, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    logs: tuple[Log, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    settings: tuple[Setting, ...] = ()
    on_this_machine: bool = False
    earlier: tuple[Evidence, ...] = ()
    unread: tuple[Unread, ...] = ()

    @property
    def name(self) -> str:
        """The job's."""
        return text(dig(self.job, "metadata", "name"))


def last_lines(content: str, *, lines: int = LOG_LINES, size: int = LOG_BYTES) -> str:
    """The end of a log, limited in lines and (roughly) in bytes. Lines are whole unless one line is too long."""
    kept = content[-size:]
    if len(kept) < len(content):
        kept = kept.partition("\n")[2] or kept
    return "".join(kept.splitlines(keepends=True)[-lines:])


def replica_named(pod: str, *, job: str) -> str:
    """``worker-1`` of ``digits-worker-1-r2``; empty where a pod of the job would not be named so."""
    found = _POD_NAME.fullmatch(pod.removeprefix(f"{job}-")) if pod.startswith(f"{job}-") else None
    return found[1] if found is not None else ""


def by_time(events: Iterable[JsonObject]) -> list[JsonObject]:
    """Events in the order in which they were seen last."""
    return sorted(events, key=event_time)


def event_time(event: JsonObject) -> str:
    """When an event was seen last, as the API server writes it; the fields differ by who wrote it."""
    return text(dig(event, "series", "lastObservedTime")) or text(event.get("deprecatedLastTimestamp")) or began(event)


def began(event: JsonObject) -> str:
    """When an event was seen first."""
    return (
        text(event.get("eventTime"))
        or text(event.get("deprecatedFirstTimestamp"))
        or text(dig(event, "metadata", "creationTimestamp"))
    )


def event_count(event: JsonObject) -> int:
    """How often an event was seen."""
    counts = (dig(event, "series", "count"), event.get("deprecatedCount"))
    return next((count for count in counts if isinstance(count, int) and count > 0), 1)


# -- what the log of a leader tells: measurements, phases, versions ---------------------------------------------

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
