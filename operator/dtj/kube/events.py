"""Event recorder: what happened to a job, as events.k8s.io/v1, for ``kubectl describe`` and ``kubectl events``.

Recording is a word to a person, never part of the work: it does not wait, does not raise and is bounded in rate
and memory. Both are shared: namespaces take turns, and in each its jobs, so that a job with much to say neither delays
nor displaces the events of others. The same message becomes one event with a count (its ``series``), as KEP-383 asks.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn

from dtj.api import names
from dtj.api.job import micro_time, parse_time
from dtj.api.json import JsonObject, dig
from dtj.api.printable import printable
from dtj.kube.errors import ApiError, NotFound, TooManyRequests, Unavailable
from dtj.kube.gateway import EVENTS, Gateway
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)

MAX_NOTE_BYTES: Final = 1024
"""Longest ``note`` that the API server takes."""

MAX_SERIES: Final = 1000
"""How many different events are remembered for counting. The oldest are forgotten first, of the job that has most, in
the namespace that has most."""

MAX_ATTEMPTS: Final = 5
"""How often one event is offered to an API server that does not answer."""

BURST: Final = 50
EVENTS_PER_SECOND: Final = 5.0
"""Rate of events, over all jobs: ``BURST`` at once, then this number a second."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The job that an event is about."""

    namespace: str
    name: str
    uid: str
    api_version: str = names.API_VERSION
    kind: str = names.KIND


EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class _Words:
    """What makes two events the same one."""

    subject: Subject
    type: EventType
    reason: str
    note: str


@dataclass(slots=True)
class _Series:
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    attempts: int = 0


class TokenBucket:
    """``burst`` at once, then ``per_second`` on average. Time is the event loop's."""

    def __init__(self, *, burst: int, per_second: float) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._tokens = self._burst
        self._filled_at: float | None = None

    async def take(self) -> None:
        """Wait for a token and take it."""
        now = loop_time()
        earned = (now - self._filled_at) * self._per_second if self._filled_at is not None else 0.0
        self._tokens = min(self._burst, self._tokens + earned) - 1.0
        self._filled_at = now
        if self._tokens < 0.0:
            await asyncio.sleep(-self._tokens / self._per_second)


class _ByJob:
    """Words, the oldest first, by namespace and job."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[str, OrderedDict[_Words, None]]] = OrderedDict()
        self._sizes: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def __contains__(self, words: _Words) -> bool:
        jobs = self._namespaces.get(words.subject.namespace)
        return jobs is not None and words in jobs.get(words.subject.uid, ())

    def add(self, words: _Words) -> None:
        if words not in self:
            namespace, job = words.subject.namespace, words.subject.uid
            self._namespaces.setdefault(namespace, OrderedDict()).setdefault(job, OrderedDict())[words] = None
            self._sizes[namespace] += 1

    def discard(self, words: _Words) -> None:
        if words not in self:
            return
        namespace, job = words.subject.namespace, words.subject.uid
        jobs = self._namespaces[namespace]
        del jobs[job][words]
        self._sizes[namespace] -= 1
        if not jobs[job]:
            del jobs[job]
        if not jobs:
            del self._namespaces[namespace], self._sizes[namespace]

    def pop_in_turn(self) -> _Words:
        """The oldest of the first job in the first namespace; what these have besides comes after all others."""
        namespace, jobs = next(iter(self._namespaces.items()))
        job, waiting = next(iter(jobs.items()))
        jobs.move_to_end(job)
        self._namespaces.move_to_end(namespace)
        words = next(iter(waiting))
        self.discard(words)
        return words

    def oldest_of_most(self) -> _Words:
        """The oldest of the job that has most, in the namespace that has most."""
        jobs = self._namespaces[max(self._sizes, key=self._sizes.__getitem__)]
        largest: OrderedDict[_Words, None] = max(jobs.values(), key=len)
        return next(iter(largest))


class EventRecorder:
    """Records events; :meth:`run` must run at the same time to write them."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        instance: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        bucket: TokenBucket | None = None,
    ) -> None:
        self._gateway = gateway
        self._instance = instance
        self._now = now
        self._bucket = bucket or TokenBucket(burst=BURST, per_second=EVENTS_PER_SECOND)
        self._backoff = Backoff(base=0.5, cap=30.0)
        self._series: dict[_Words, _Series] = {}
        self._known = _ByJob()
        """Of which words there is a series, those that were said latest at the end."""

        self._unwritten = _ByJob()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def record(self, subject: Subject, event_type: EventType, reason: str, note: str) -> None:
        """Say ``note`` about ``subject``. Returns at once."""
        words = _Words(subject, event_type, reason, _shortened(note))
        series = self._series.get(words)
        if series is None:
            moment = self._now()
            self._series[words] = _Series(first=moment, last=moment)
            if len(self._series) > MAX_SERIES:
                self._drop(self._known.oldest_of_most())
        else:
            series.count += 1
            series.last = self._now()
            self._known.discard(words)
        self._known.add(words)
        self._unwritten.add(words)
        self._idle.clear()
        self._work.set()

    def forget(self, uid: str) -> None:
        """Drop the counts of an object that is gone."""
        for words in [words for words in self._series if words.subject.uid == uid]:
            if words not in self._unwritten:
                self._drop(words)

    def _drop(self, words: _Words) -> None:
        self._series.pop(words, None)
        self._known.discard(words)
        self._unwritten.discard(words)

    async def run(self) -> NoReturn:
        """Write what is recorded, until cancelled."""
        while True:
            await self._work.wait()
            while self._unwritten:
                await self._bucket.take()
                words = self._unwritten.pop_in_turn()
                series = self._series.get(words)
                if series is not None:
                    await self._write(words, series)
            self._work.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until everything recorded so far is written or given up."""
        await self._idle.wait()

    async def _write(self, words: _Words, series: _Series) -> None:
        try:
            if series.name:
                await self._count_up(words, series)
            else:
                await self._create(words, series)
        except (Unavailable, TooManyRequests) as error:
            await self._offer_again(words, series, error)
        except ApiError as error:
            self._lose(words, error)
        else:
            series.attempts = 0

    async def _create(self, words: _Words, series: _Series) -> None:
        name = f"{words.subject.name}.{secrets.token_hex(8)}"
        body = self._event(words, series, name=name)
        await self._gateway.create(EVENTS, namespace=words.subject.namespace, body=body)
        series.name = name

    async def _count_up(self, words: _Words, series: _Series) -> None:
        patch: JsonObject = {"series": _counted(series)}
        try:
            await self._gateway.patch(EVENTS, namespace=words.subject.namespace, name=series.name, patch=patch)
        except NotFound:
            # API servers forget events after an hour.
            series.first = series.last
            await self._create(words, series)

    async def _offer_again(self, words: _Words, series: _Series, error: ApiError) -> None:
        series.attempts += 1
        if series.attempts >= MAX_ATTEMPTS:
            self._lose(words, error)
            return
        await asyncio.sleep(self._backoff.delay(series.attempts, at_least=error.retry_after))
        self._unwritten.add(words)

    def _lose(self, words: _Words, error: ApiError) -> None:
        log.warning("event %s about %s is lost: %s", words.reason, words.subject.name, error.message)
        self._drop(words)

    def _event(self, words: _Words, series: _Series, *, name: str) -> JsonObject:
        subject = words.subject
        event: JsonObject = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": subject.namespace},
            "eventTime": micro_time(series.first),
            "reportingController": names.MANAGER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "type": words.type,
            "reason": words.reason,
            "note": words.note,
            "regarding": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
        }
        if series.count > 1:
            event["series"] = _counted(series)
        return event


def _counted(series: _Series) -> JsonObject:
    return {"count": series.count, "lastObservedTime": micro_time(series.last)}


def reported_at(event: JsonObject) -> datetime | None:
    """When an event was reported last; kubelets write the deprecated fields."""
    given = (
        dig(event, "series", "lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        dig(event, "metadata", "creationTimestamp"),
    )
    return next((at for at in map(parse_time, given) if at is not None), None)


def _shortened(note: str) -> str:
    note = printable(note)
    encoded = note.encode()
    if len(encoded) <= MAX_NOTE_BYTES:
        return note
    return encoded[: MAX_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
