"""What was found out about a job, what the log of its leader tells, and what could not be found out. Pure.

The page of a report is made of this alone: of a job on a cluster and of a run here alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from dtj.api.job import parse_time
from dtj.api.json import name_of, text
from dtj.api.spec import Role
from dtj.client.overview import Event

_POD_NAME: Final = re.compile(rf"((?:{'|'.join(Role)})-\d+)(?:-r\d+)?")


LOG_LINES: Final = 1000
LOG_BYTES: Final = 2**17
"""How much of each log is shown, from its end."""


class Log(NamedTuple):
    """One log. ``name`` says whose: ``worker-0-r1``; with ``stamped`` each line begins with its time, as an
    API server writes it."""

    name: str
    text: str
    stamped: bool = False

    def end(self) -> Log:
        """As much of it as is shown."""
        return self._replace(text="".join(self.text[-LOG_BYTES:].splitlines(keepends=True)[-LOG_LINES:]))


class Scalar(NamedTuple):
    """A value that was measured at a step; ``at`` is when, where that is known."""

    name: str
    step: int
    number: float
    at: datetime | None


class PhaseChange(NamedTuple):
    """A replica, such as worker-0, began something at this moment: ``Training``."""

    replica: str
    phase: str
    at: datetime


class Setting(NamedTuple):
    """Something that the job ran with, such as a version; ``group`` says what kind of thing it is."""

    group: str
    name: str
    words: str


class Unread(NamedTuple):
    """Something that would have belonged here, and why it is not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One job at one moment; its objects are as the API server or the local run gave them.

    ``source`` says where it was found. ``earlier`` is the job as it was at the end of each start before the last one,
    if this is a run that was resumed; pods, events and phases are those of all starts. ``objects`` are its pods and
    what else the cluster has of it, by kind.
    """

    source: str
    taken_at: datetime
    job: dict[str, Any]
    earlier: tuple[dict[str, Any], ...] = ()
    events: tuple[Event, ...] = ()
    objects: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    logs: tuple[Log, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    settings: tuple[Setting, ...] = ()
    on_this_machine: bool = False
    unread: tuple[Unread, ...] = ()

    @property
    def name(self) -> str:
        """The job's."""
        return name_of(self.job)

    @property
    def pods(self) -> tuple[dict[str, Any], ...]:
        """All that are known, those of earlier attempts too."""
        return self.objects.get("pods", ())


def replica_named(pod: str, *, job: str) -> str:
    """``worker-1`` of ``digits-worker-1-r2``; empty where a pod of the job would not be named so."""
    found = _POD_NAME.fullmatch(pod.removeprefix(f"{job}-")) if pod.startswith(f"{job}-") else None
    return found[1] if found is not None else ""


# -- what the log of a leader tells: measurements and versions --------------------------------------------------

SPEED: Final = "examples/s"
VALIDATION: Final = "val_"
"""What the name of a metric of held-out examples begins with, as in Keras."""

AT_THE_END: Final = "held_out/"
"""The same of the evaluation after the last step."""

_SIZES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_STEP: Final = re.compile(r"(?:validation: )?step (\d+)(?:/\d+(?: \(\d+%\))?)?(?:  (.+))?")
_END: Final = re.compile(r"held-out: (.+)")
_PAIR: Final = re.compile(r"([^\s/]+) (-?[\d.]+(?:e[-+]?\d+)?)")
_SPEED: Final = re.compile(r"([\d.]+)([kMG]?) examples/s")
_VERSIONS: Final = re.compile(r"versions: (\S+ \S+(?:, \S+ \S+)*)")


def scalars_of(logs: Iterable[Log]) -> tuple[Scalar, ...]:
    """What the leader printed; its earlier incarnations come first."""
    return tuple(scalar for log in logs for scalar in _scalars(log))


def versions_of(logs: Iterable[Log]) -> tuple[Setting, ...]:
    """The versions that a trainer printed last; nothing if another program wrote the logs."""
    lines = (_VERSIONS.fullmatch(words) for log in logs for _, words in _messages(log))
    last = None
    for line in filter(None, lines):
        last = line
    return tuple(Setting("Versions", *pair.split(" ", 1)) for pair in last[1].split(", ")) if last is not None else ()


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
