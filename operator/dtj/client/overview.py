"""All that is known of a job at one moment: its own status, and the objects around it.

A user who may read the job may not be allowed to read the rest. A part that cannot be read says so, and hides no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.spec import as_role
from dtj.client import job_names
from dtj.client.pods import JobPod, pods_of, selector_of
from dtj.core.context import JobContext
from dtj.core.replicas import incarnation, pod_name, replicas
from dtj.core.status import recorded_completions
from dtj.kube.client import KubeGateway
from dtj.kube.decoding import decode_object
from dtj.kube.errors import ApiError, NotFound
from dtj.kube.events import reported_at
from dtj.kube.gateway import CLAIMS, EVENTS, NODES, Listing
from dtj.kube.records import plain_from_object

_MAX_PODS_ASKED: Final = 5
"""Of this many pods that do not run, the events are read."""

_MAX_NODES_ASKED: Final = 10


@dataclass(frozen=True, slots=True)
class Event:
    """What was reported of the job or of one of its pods; the same words are counted."""

    type: str
    reason: str
    note: str
    about: str
    count: int
    last: datetime | None

    @classmethod
    def from_object(cls, body: JsonObject) -> Event:
        """Read an event of events.k8s.io/v1, of which some fields are there only if an older client wrote it."""
        count = dig(body, "series", "count") or body.get("deprecatedCount")
        return cls(
            type=text(body.get("type")),
            reason=text(body.get("reason")),
            note=text(body.get("note")),
            about=text(dig(body, "regarding", "name")),
            count=count if isinstance(count, int) else 1,
            last=reported_at(body),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A job and what is around it; ``body`` is the job as the API server gave it."""

    job: Job
    at: datetime
    pods: Part[JobPod]
    events: Part[Event]
    claims: Part[JsonObject]
    nodes: Part[JsonObject]
    body: JsonObject

    @property
    def current_pods(self) -> tuple[JobPod, ...]:
        """Of each replica the newest pod. TensorBoard is no replica."""
        newest = {each.replica: each for each in self.pods.items if as_role(each.pod.role) is not None}
        return tuple(newest.values())

    def context(self) -> JobContext | None:
        """The job as the planner sees it, as far as it is read here; None if its manifest cannot be read."""
        if self.job.spec is None:
            return None
        return JobContext.seen(self.job, (each.pod for each in self.pods.items), self.at)

    @property
    def missing_pods(self) -> tuple[str, ...]:
        """Names of pods that the job should have and has not; unknown where pods cannot be read."""
        job, status = self.job, self.job.status
        if job.spec is None or self.pods.unread or status.start_time is None or status.terminal:
            return ()
        there = {each.replica for each in self.pods.items}
        done = recorded_completions(status)
        wanted = (r for r in replicas(job.spec) if r not in done and (str(r.role), r.index) not in there)
        return tuple(pod_name(job, replica, incarnation(status, replica)) for replica in wanted)


async def gather(gateway: KubeGateway, name: str, *, namespace: str) -> Overview:
    """Everything about a job. Raises ApiError where the job itself cannot be read, NotFound where there is none."""
    body = await job_names.read(gateway, name, namespace=namespace)
    job = Job.from_object(body)
    pods, claims, job_events = await asyncio.gather(
        part(pods_of(gateway, job)),
        part(all_of(gateway.list(CLAIMS, namespace=namespace, selector=selector_of(job)))),
        part(all_of(gateway.list(EVENTS, namespace=namespace, field_selector=f"regarding.uid={job.uid}"))),
    )
    waiting = [each for each in pods.items if not (each.pod.ready or each.pod.main_container_ended)][:_MAX_PODS_ASKED]
    asked = (
        all_of(gateway.list(EVENTS, namespace=namespace, field_selector=f"regarding.uid={each.uid}"))
        for each in waiting
    )
    of_pods = await asyncio.gather(*map(part, asked))
    events = [*job_events.items, *(event for read in of_pods for event in read.items)]
    nodes = await _nodes(gateway, pods.items)
    return Overview(
        job=job,
        at=datetime.now(UTC),
        pods=pods,
        events=Part(aggregated(Event.from_object(event) for event in events), job_events.unread),
        claims=_owned_by(job, claims),
        nodes=nodes,
        body=body,
    )


def aggregated(events: Iterable[Event]) -> tuple[Event, ...]:
    """Events with equal text about the same kind of object, merged into one with a count; the newest last."""
    same: dict[tuple[str, str, str, str], Event] = {}
    for event in events:
        key = (event.type, event.reason, event.note, event.about)
        before = same.get(key)
        last = max(filter(None, (event.last, before.last if before else None)), default=None)
        count = event.count + (before.count if before else 0)
        same[key] = Event(event.type, event.reason, event.note, event.about, count, last)
    return tuple(sorted(same.values(), key=lambda event: event.last.timestamp() if event.last else 0.0))


async def _nodes(gateway: KubeGateway, pods: Iterable[JobPod]) -> Part[JsonObject]:
    """The nodes of pods that should run, and are not ready: they may be the reason."""
    suspects = dict.fromkeys(
        each.pod.node for each in pods if each.pod.node and not each.pod.ready and not each.pod.main_container_ended
    )
    found: list[JsonObject] = []
    for name in list(suspects)[:_MAX_NODES_ASKED]:
        try:
            found.append(await gateway.get(NODES, namespace=None, name=name))
        except NotFound:
            found.append({"metadata": {"name": name}, "status": {}})
        except ApiError as error:
            return Part(tuple(found), error.message)
    return Part(tuple(found))


def _owned_by(job: Job, read: Part[JsonObject]) -> Part[JsonObject]:
    mine = (body for body in read.items if job.owns(plain_from_object(body).metadata))
    return Part(tuple(mine), read.unread)


# -- reads of which none fails the others -----------------------------------------------------------------------


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What was read; ``unread`` is why it could not be read, in the words of the API server."""

    items: tuple[T, ...] = ()
    unread: str = ""


async def part(call: Awaitable[tuple[T, ...]]) -> Part[T]:
    """What a call returns, or why it was refused."""
    try:
        return Part(await call)
    except ApiError as error:
        return Part(unread=error.message or "the API server refused it")


async def one(call: Awaitable[T]) -> tuple[T, ...]:
    """The object that a call returns. Raises ApiError."""
    return (await call,)


async def all_of(call: Awaitable[Listing]) -> tuple[JsonObject, ...]:
    """The objects of a list. Raises ApiError."""
    return tuple(decode_object(item) for item in (await call).items)
