"""What was found out about a job, what its leader has measured, and what could not be found out. Pure.

The page of a report is made of this alone: of a job on a cluster and of a run here alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from dtj.api.job import Job, parse_time
from dtj.api.json import name_of
from dtj.api.spec import Role
from dtj.api.tfjob.names import MASTER
from dtj.client.overview import Event
from dtj.core.membership import world_of
from dtj.core.replicas import Replica, deciding_replica

S = TypeVar("S", bound=msgspec.Struct)

_POD_NAME: Final = re.compile(rf"((?:{'|'.join((*Role, MASTER))})-\d+)(?:-r\d+)?")


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


def leaders(job: Job) -> set[Replica]:
    """The replica that led the training first, and the one that leads now: what they measured is the job's."""
    if job.spec is None:
        return set()
    world = world_of(job, job.spec)
    found = (deciding_replica(job.spec), deciding_replica(job.spec, world.members if world is not None else None))
    return {replica for replica in found if replica is not None}


# -- what a leader has written: measurements and versions -------------------------------------------------------

SPEED: Final = "examples_per_second"
VALIDATION: Final = "val_"
"""What the name of a metric of held-out examples begins with, as in Keras."""

AT_THE_END: Final = "held_out/"
"""The same of the evaluation after the last step."""


class _Measured(msgspec.Struct, rename="camel"):
    """What was measured at a step: a line of a metrics file, and ``progress`` of a log line in JSON."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    metrics: Mapping[str, float | str]
    time: datetime | None = None
    examples_per_second: float | None = None

    def scalars(self, at: datetime | None) -> Iterator[Scalar]:
        for name, value in self.metrics.items():
            with suppress(ValueError):
                yield Scalar(name, self.step, float(value), at)
        if self.examples_per_second is not None:
            yield Scalar(SPEED, self.step, self.examples_per_second, at)


class _JsonLine(msgspec.Struct):
    """A line of a trainer that logs JSON, so far as it is of use here."""

    message: str = ""
    progress: _Measured | None = None


def scalars_in(metrics: Iterable[str]) -> tuple[Scalar, ...]:
    """What is in the texts of metrics files, by time. A line that is none is left out: one may be half written.

    A time without a zone, as of a program of the user's own, is taken as UTC.
    """
    lines = (_read(line, _Measured) for text in metrics for line in text.splitlines())
    return _by_time(scalar for line in lines if line is not None for scalar in line.scalars(_aware(line.time)))


def _aware(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def scalars_of(logs: Iterable[Log]) -> tuple[Scalar, ...]:
    """What leaders wrote that log JSON, by time. Other log lines are for people: nothing is read out of them."""
    lines = ((at, _read(words, _JsonLine)) for log in logs for at, words in _lines(log))
    return _by_time(
        scalar
        for at, line in lines
        if line is not None and line.progress is not None
        for scalar in line.progress.scalars(at)
    )


def _by_time(found: Iterable[Scalar]) -> tuple[Scalar, ...]:
    return tuple(sorted(found, key=lambda each: each.at.timestamp() if each.at is not None else 0.0))


def versions_of(logs: Iterable[Log]) -> tuple[Setting, ...]:
    """The versions that a trainer printed last; nothing if another program wrote the logs."""
    last: list[str] = []
    for log in logs:
        for _, words in _lines(log):
            json = _read(words, _JsonLine)
            begin, _, versions = (words if json is None else json.message).partition("versions: ")
            pairs = versions.split(", ")
            if not begin and all(len(pair.split(" ")) == 2 for pair in pairs):
                last = pairs
    return tuple(Setting("Versions", *pair.split(" ")) for pair in last)


def _lines(log: Log) -> Iterator[tuple[datetime | None, str]]:
    """When each line was written, and its text."""
    for line in log.text.splitlines():
        stamp, _, words = line.partition(" ") if log.stamped else ("", "", line)
        yield parse_time(stamp), words.strip()


def _read(line: str, kind: type[S]) -> S | None:
    """A line in JSON; None where it is none of this kind."""
    if not line.startswith("{"):
        return None
    try:
        return msgspec.json.decode(line, type=kind)
    except (ValueError, RecursionError):
        return None
