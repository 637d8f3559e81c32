"""The rows of pods on the line of time: from their status, from the phases that are known, or from events. Pure.

Pods that are gone are drawn from the events about them, which an API server keeps for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.cli.report.evidence import Evidence, began, event_time, replica_named
from dtj.cli.report.look import Bar, Look, Row
from dtj.cli.report.phases import phase_bars
from dtj.convert.pod_records import pod_from
from dtj.core.outcome import how_pod_ended
from dtj.core.pod_state import main_container_of, stopped_on_request
from dtj.kube.records import pod_from_object


def pod_rows(evidence: Evidence) -> Iterator[Row]:
    """A row for each pod, those of which only events or phases are known too."""
    job = Job.from_object(evidence.job)
    on_request = stopped_on_request(pod_from(pod_from_object(pod)) for pod in evidence.pods)
    rows = [row for pod in evidence.pods if (row := _pod_row(pod, job, evidence, on_request)) is not None]
    rows += _gone_pods(evidence, job, {text(dig(pod, "metadata", "name")) for pod in evidence.pods})
    yield from rows or _rows_of_phases(evidence, job)


def _pod_row(pod: JsonObject, job: Job, evidence: Evidence, on_request: frozenset[str]) -> Row | None:
    created = parse_time(dig(pod, "metadata", "creationTimestamp"))
    if created is None:
        return None
    name = text(dig(pod, "metadata", "name"))
    bars = _bars(*_before_start(pod, created, evidence.taken_at), *_since_start(pod, name, evidence, on_request))
    return Row(_short(name, job), bars)


def ran_since(pod: JsonObject) -> datetime | None:
    """When its main container started; None if it has not."""
    state = _main_state(pod)
    return parse_time(dig(state, "terminated", "startedAt")) or parse_time(dig(state, "running", "startedAt"))


def _before_start(pod: JsonObject, created: datetime, now: datetime) -> Iterator[Bar]:
    """The wait for a node, and then for images and volumes."""
    state = _main_state(pod)
    # A container that never ran has an end and no start.
    until = ran_since(pod) or parse_time(dig(state, "terminated", "finishedAt"))
    if until is None and dig(pod, "status", "phase") == "Failed":
        until = created
    if until is None:
        why = text(dig(state, "waiting", "reason")) or _scheduling(pod, "False", "reason") or "waiting"
        yield Bar(created, now, Look.WAITING, why)
        return
    placed = parse_time(_scheduling(pod, "True", "lastTransitionTime"))
    if placed is not None and created < placed < until:
        yield Bar(created, placed, Look.WAITING, "waiting for a node")
        created = placed
    yield Bar(created, until, Look.WAITING, "waiting")


def _since_start(pod: JsonObject, name: str, evidence: Evidence, on_request: frozenset[str]) -> Iterator[Bar]:
    """What a pod did from the start of its main container on, and how it ended."""
    state, since, now = _main_state(pod), ran_since(pod), evidence.taken_at
    end = dig(state, "terminated")
    if isinstance(end, dict):
        finished = parse_time(end.get("finishedAt")) or now
        look, words = _pod_end(pod, on_request)
        phases = _phases(evidence, name, min(since or finished, finished), finished)
        yield from phases
        yield Bar(finished if phases else min(since or finished, finished), finished, look, words)
    elif since is not None:
        yield from _phases(evidence, name, since, now) or _by_readiness(pod, since, now)
    elif dig(pod, "status", "phase") == "Failed":  # without having run: evicted, refused by its node
        created = parse_time(dig(pod, "metadata", "creationTimestamp")) or now
        yield Bar(created, parse_time(_last_transition(pod)) or now, *_pod_end(pod, on_request))


def _phases(evidence: Evidence, pod: str, start: datetime, end: datetime) -> tuple[Bar, ...]:
    return phase_bars(evidence.phases, replica_named(pod, job=evidence.name), start, end)


def _by_readiness(pod: JsonObject, since: datetime, now: datetime) -> Iterator[Bar]:
    ready = _ready_since(pod)
    yield Bar(since, ready or now, Look.STARTING, "starting")
    if ready is not None:
        yield Bar(ready, now, Look.RUNNING, "running")


def _bars(*bars: Bar) -> tuple[Bar, ...]:
    """Those that take any time, and the last in any case."""
    return tuple(
        Bar(bar.start, max(bar.start, bar.end), bar.look, bar.words)
        for place, bar in enumerate(bars, start=1)
        if bar.end > bar.start or place == len(bars)
    )


def _rows_of_phases(evidence: Evidence, job: Job) -> Iterator[Row]:
    """The replicas of a start of a run of which there is no other record: it still runs, or was killed."""
    start, end = parse_time(job.status.start_time), parse_time(job.status.completion_time) or evidence.taken_at
    for replica in dict.fromkeys(change.replica for change in evidence.phases):
        bars = phase_bars(evidence.phases, replica, start, end) if start is not None else ()
        if bars:
            ended = (Bar(end, end, Look.STOPPED, "stopped"),) if job.status.completion_time else ()
            yield Row(replica, (*bars, *ended))


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


def _scheduling(pod: JsonObject, status: str, field: str) -> str:
    """A field of the condition PodScheduled if it has this status."""
    found = (
        text(condition.get(field))
        for condition in objects(dig(pod, "status", "conditions"))
        if condition.get("type") == "PodScheduled" and condition.get("status") == status
    )
    return next(found, "")


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
        waited, ran = Bar(first, started or last, Look.WAITING, "waiting"), Bar(started or last, last, look, words)
        yield Row(_short(name, job), _bars(waited, ran), gone=True)


def _moments(event: JsonObject) -> Iterable[datetime]:
    return [moment for word in (began(event), event_time(event)) if (moment := parse_time(word)) is not None]


def _short(pod: str, job: Job) -> str:
    return pod.removeprefix(f"{job.name}-")
