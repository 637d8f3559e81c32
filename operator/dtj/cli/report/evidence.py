"""What was found out about a job, and what could not be. Plain values; nothing here reads anything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

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
