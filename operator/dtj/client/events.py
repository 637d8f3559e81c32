"""What the cluster has said of a job and its pods: events of the API server as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from dtj.api.job import parse_time


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened, perhaps ``count`` times, the last time at ``at``.

    ``type`` is Normal or Warning, ``reason`` one word, ``note`` a sentence, ``kind`` and ``name`` the object that it
    is about, which ``uid`` tells from others of its name; ``by`` is who says so.
    """

    at: datetime | None
    type: str
    reason: str
    note: str
    kind: str
    name: str
    uid: str
    by: str
    count: int = 1


class _Subject(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Meta(msgspec.Struct, rename="camel"):
    creation_timestamp: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    """events.k8s.io/v1; what older clients wrote through the core API is in the deprecated fields."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    regarding: _Subject = msgspec.field(default_factory=_Subject)
    type: str = ""
    reason: str = ""
    note: str = ""
    reporting_controller: str = ""
    event_time: str | None = None
    series: _Series | None = None
    deprecated_source: dict[str, Any] | None = None
    deprecated_count: int | None = None
    deprecated_last_timestamp: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


def event_from(item: bytes) -> JobEvent:
    """An event of the API server. Raises msgspec.DecodeError where it is none."""
    event = _decode(item)
    series = event.series
    last = (series.last_observed_time if series else None) or event.deprecated_last_timestamp or event.event_time
    component = (event.deprecated_source or {}).get("component")
    return JobEvent(
        at=parse_time(last or event.metadata.creation_timestamp),
        type=event.type,
        reason=event.reason,
        note=event.note,
        kind=event.regarding.kind,
        name=event.regarding.name,
        uid=event.regarding.uid,
        by=event.reporting_controller or str(component or ""),
        count=series.count if series else event.deprecated_count or 1,
    )
