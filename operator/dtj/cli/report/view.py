"""What the page of a job shows, as plain values: made of the evidence, with nothing left to find out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import yaml

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Condition, State
from dtj.api.status import RootCause
from dtj.cli.common.formatting import counted, listed, restarts_by_class, short_number, short_time
from dtj.cli.report.configuration import JOB, configuration
from dtj.cli.report.curves import Curve, curves
from dtj.cli.report.evidence import (
    Evidence,
    Log,
    Setting,
    Unread,
    by_time,
    event_count,
    event_time,
    last_lines,
    replica_named,
)
from dtj.cli.report.history import history
from dtj.cli.report.look import History, Look
from dtj.cli.report.measured import SPEED
from dtj.cli.report.values import ValueRow, value_rows
from dtj.client.diagnosis import explaining_condition
from dtj.core.pod_state import main_container_of
from dtj.local.run_directory import STOPPED

MAX_EVENTS: Final = 300
MAX_LOGS: Final = 24
LOG_LINES: Final = 200
LOG_BYTES: Final = 2**16
"""Of each log, on the page; the bundle has more."""

_LOOKS: Final[dict[str, Look]] = {
    State.SUCCEEDED: Look.SUCCEEDED,
    State.FAILED: Look.FAILED,
    State.RUNNING: Look.RUNNING,
    State.SUSPENDED: Look.STOPPED,
    STOPPED: Look.STOPPED,
}
"""By the state of a job, or of a run on this machine that was stopped."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event; ``times`` is how often it was seen, ``at`` when last."""

    at: datetime | None
    warning: bool
    reason: str
    subject: str
    note: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """One job on one page. ``why`` is one sentence where the job does not run; ``restarts`` are (class, number)."""

    name: str
    source: str
    taken_at: datetime
    state: str
    look: Look
    facts: tuple[tuple[str, str], ...]
    why: str
    cause: RootCause | None
    restarts: tuple[tuple[str, int], ...]
    history: History
    curves: tuple[Curve, ...]
    values: tuple[ValueRow, ...]
    settings: tuple[Setting, ...]
    events: tuple[EventLine, ...]
    logs: tuple[Log, ...]
    has_logs: bool
    spec: str
    unread: tuple[Unread, ...]


def page_view(evidence: Evidence) -> PageView:
    """What there is to show of the job."""
    job = Job.from_object(evidence.job)
    state = job.status.state or "not known"
    drawn_history = history(evidence)
    drawn = curves(evidence, drawn_history.restarts)
    logs = _logs(evidence, job)
    return PageView(
        name=job.name,
        source=evidence.source,
        taken_at=evidence.taken_at,
        state=state,
        look=_LOOKS.get(state, Look.STARTING if state in set(State) else Look.WAITING),
        facts=tuple(_facts(evidence, job, drawn, drawn_history)),
        why=_why(job),
        cause=job.status.root_cause,
        restarts=tuple(restarts_by_class(job.status.restarts)),
        history=drawn_history,
        curves=drawn,
        values=value_rows(drawn),
        settings=tuple(each for each in configuration(evidence) if each.group != JOB),  # which the head shows
        events=tuple(_event(event) for event in by_time(_events(evidence))[-MAX_EVENTS:]),
        logs=logs,
        has_logs=bool(evidence.logs) or evidence.on_this_machine,
        spec=yaml.safe_dump({"spec": job.raw_spec}, sort_keys=False, allow_unicode=True, width=100),
        unread=(*evidence.unread, *_cut(evidence, logs)),
    )


def _facts(evidence: Evidence, job: Job, drawn: tuple[Curve, ...], known: History) -> Iterator[tuple[str, str]]:
    status, spec = job.status, job.spec
    if spec is not None:
        yield "strategy", str(spec.strategy)
        yield "replicas", listed(counted(spec.replicas(role), role) for role in spec.roles())
    images = dict.fromkeys(filter(None, (_image(pod) for pod in evidence.pods)))
    if images and not evidence.on_this_machine:  # which pulls none
        yield "image", ", ".join(images)
    if status.ready and not status.completion_time:
        yield "ready", status.ready
    yield from _times(evidence, job, known)
    yield from _progress(job, max((point.step for curve in drawn for point in curve.points), default=0))
    speed = next((curve for curve in drawn if curve.name == SPEED), None)
    if speed is not None:
        yield "speed", f"{short_number(speed.points[-1].value)} examples/s at the end"
    for name, value in _measured_once(evidence).items():
        yield name, f"{value:.4g}"
    if status.export is not None:
        yield "model", f"{status.export.path}  ({', '.join(status.export.formats)})"


def _times(evidence: Evidence, job: Job, known: History) -> Iterator[tuple[str, str]]:
    """When it began and how long it took: of a run that was resumed, since its first start, and without the pauses."""
    starts = [parse_time(Job.from_object(part.job).status.start_time) for part in evidence.earlier]
    own, over = parse_time(job.status.start_time), parse_time(job.status.completion_time)
    begun = next((start for start in (*starts, own) if start is not None), None)
    if begun is None or own is None:
        return
    yield "started", clock(begun)
    took = known.seconds if evidence.earlier else ((over or evidence.taken_at) - own).total_seconds()
    parts = f" in {len(evidence.earlier) + 1} starts" if evidence.earlier else ""
    yield ("took" if over is not None else "so far"), f"{short_time(took)}{parts}"


def _measured_once(evidence: Evidence) -> dict[str, float]:
    """What was measured at the end, such as held_out/accuracy: of a run that was resumed, the last time."""
    steps: dict[str, set[int]] = {}
    for scalar in evidence.scalars:
        steps.setdefault(scalar.name, set()).add(scalar.step)
    return {
        scalar.name.replace("_", "-").replace("/", " "): scalar.value
        for scalar in evidence.scalars
        if len(steps[scalar.name]) == 1 and "/" in scalar.name
    }


def _progress(job: Job, seen: int) -> Iterator[tuple[str, str]]:
    """How far the training came; ``seen`` is the last step of a curve, of which the status may not know yet."""
    progress = job.status.progress
    if progress is None:
        return
    if progress.step is not None:
        yield "steps", str(max(progress.step, seen)) + (f" of {progress.total_steps}" if progress.total_steps else "")
    if not seen:
        yield from progress.metrics.items()
    # The status of a job that has ended does not know of its last checkpoint.
    if progress.last_checkpoint_step is not None and not job.status.is_true(Condition.COMPLETE):
        yield "last checkpoint", f"step {progress.last_checkpoint_step}"


def _image(pod: JsonObject) -> str:
    return text(main_container_of(pod).get("image"))


def _why(job: Job) -> str:
    """The operator's own sentence about a job that failed, cannot be run, or does not run yet."""
    because = explaining_condition(job)
    return because.message if because is not None and not job.status.is_true(Condition.COMPLETE) else ""


def _events(evidence: Evidence) -> tuple[JsonObject, ...]:
    """Those of all starts of a run."""
    return (*(event for part in evidence.earlier for event in part.events), *evidence.events)


def _event(event: JsonObject) -> EventLine:
    kind, name = text(dig(event, "regarding", "kind")), text(dig(event, "regarding", "name"))
    return EventLine(
        at=parse_time(event_time(event)),
        warning=event.get("type") == "Warning",
        reason=text(event.get("reason")),
        subject=f"{kind} {name}".strip(),
        note=text(event.get("note")),
        times=event_count(event),
    )


def _logs(evidence: Evidence, job: Job) -> tuple[Log, ...]:
    """The ends of the logs, that of the pod which failed first before all others."""
    cause = job.status.root_cause
    replica = f"{cause.role}-{cause.index}" if cause is not None else ""

    def is_cause(log: Log) -> bool:
        return cause is not None and (log.name == cause.pod or replica_named(log.name, job=job.name) == replica)

    chosen = sorted((log for log in evidence.logs if log.text), key=lambda log: not is_cause(log))
    return tuple(
        Log(log.name, last_lines(log.text, lines=LOG_LINES, size=LOG_BYTES), log.stamped) for log in chosen[:MAX_LOGS]
    )


def _cut(evidence: Evidence, shown: tuple[Log, ...]) -> Iterator[Unread]:
    """What is known, but too long for a page."""
    more = sum(bool(log.text) for log in evidence.logs) - len(shown)
    if more:
        yield Unread(f"{more} more logs", "the page shows the first; the bundle (without --html) has all")
    events = len(_events(evidence)) - MAX_EVENTS
    if events > 0:
        yield Unread(f"{events} older events", "the page shows the newest; the bundle (without --html) has all")


def clock(moment: datetime) -> str:
    """``2026-01-02 03:04:05 UTC``, in the moment's own zone."""
    return f"{moment:%Y-%m-%d %H:%M:%S} {moment.tzname() or ''}".rstrip()
