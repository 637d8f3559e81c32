"""Informer: a copy in memory of all objects of a kind, kept true by list and watch.

The promises, in the order of the failures that they come from:

- Every object that vanishes is reported, also one that vanished while nobody was watching: what is missing from
  a new list is deleted from the store like any other (kopf's index keeps such ghosts).
- An API server that is gone or restarted is waited for without end; a run ends by cancellation only. An outage is
  logged once, and so is its end.
- A watch that the API server answers with an error of any code (410, 429, 500, 504 "Too large resource version"), or
  that stays silent, is followed by a new list, as in client-go's reflector. Only a broken connection is not: the next
  watch goes on from its place.
- The callback sees changes one by one, in order, after the store has them.
- An object that cannot be read is named once and left out; what was known of it stays. It stops no other.

It decides nothing and asks nothing of the API server but list and watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar

from dtj.kube.decoding import Once, Unreadable
from dtj.kube.errors import ApiError, Gone
from dtj.kube.gateway import Gateway, Resource, WatchEvent
from dtj.kube.records import Key, Record, decode_plain, version_number
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)

MAX_READ_AT_ONCE: Final = 50
"""Objects of a page that are read before the event loop gets to do something else: a page may have 8 MiB."""

SHORTEST_WATCH: Final = 1.0
"""Seconds; one that ends sooner, without a word, is no watch, and would be asked for without a pause."""

R = TypeVar("R", bound=Record)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What happened to an object: ``before`` is None for a new one, ``after`` for one that is gone."""

    before: T | None
    after: T | None


class _Read(NamedTuple, Generic[T]):
    """An object as it is kept from the moment that it is read: its record may be a hundred times as large."""

    key: Key
    uid: str
    version: str
    value: T


class Informer(Generic[R, T]):
    """All objects of ``resource`` in one namespace (None: in all) that carry the labels of ``selector``.

    ``decode`` reads an object's JSON, ``convert`` makes of it what the store keeps.
    """

    def __init__(
        self,
        gateway: Gateway,
        resource: Resource,
        *,
        decode: Callable[[bytes], R],
        convert: Callable[[R], T],
        on_change: Callable[[Change[T]], None],
        namespace: str | None = None,
        selector: str = "",
        backoff: Backoff | None = None,
        on_turned_back: Callable[[], None] = lambda: None,
        on_unreadable: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._gateway = gateway
        self._decode = decode
        self._convert = convert
        self._on_change = on_change
        self._namespace = namespace
        self._selector = selector
        self._backoff = backoff or Backoff(base=0.5, cap=30.0)
        self._on_turned_back = on_turned_back
        self._on_unreadable = on_unreadable
        self._unreadable = Once()
        self._values: dict[Key, T] = {}
        self._uids: dict[Key, str] = {}
        self._failures = 0
        self._places_lost = 0
        """Watches in a row that ended in an error of the API server's before they showed anything."""

        self._listed_version = ""

    @property
    def failing(self) -> bool:
        """Whether the API server has not answered since the last error."""
        return self._failures > 0

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        version: str | None = None
        while True:
            try:
                version = await self._list() if version is None else version
                version = await self._watch(version)
            except ApiError as error:
                await self._wait_out(error)

    async def _list(self) -> str:
        listed: dict[Key, _Read[T]] = {}
        unread: set[Key | None] = set()
        version = ""
        async for page in self._gateway.pages(self.resource, namespace=self._namespace, selector=self._selector):
            # A pod's JSON is much longer than what is kept of it: 130,000 bytes in a job of 2,700 workers.
            for number, body in enumerate(page.items, start=1):
                try:
                    read = self._read(body)
                except Unreadable as error:
                    unread.add(self._skip(body, error))
                    continue
                listed[read.key] = read
                if number % MAX_READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
            version = page.resource_version
        self._recovered()
        for key in [key for key in self._values if key not in listed and key not in unread]:
            self._delete(key)
        for read in listed.values():
            self._put(read)
        self.synced.set()
        self._compare(version)
        return version

    def _compare(self, version: str) -> None:
        """Versions of lists only grow, unless etcd was restored from a backup."""
        before, self._listed_version = self._listed_version, version
        one, other = version_number(version), version_number(before)
        if one is not None and other is not None and one < other:
            log.warning("%s: the API server went back to an older history, version %s", self._title(), version)
            self._on_turned_back()

    async def _watch(self, version: str) -> str | None:
        """Follow changes until the server ends the watch. Returns where to continue, None to list again."""
        began, told = loop_time(), False
        try:
            async with self._events(version) as events:
                async for event in events:
                    told = True
                    self._recovered()
                    self._places_lost = 0
                    version = self._apply(event) or version
        except ApiError as error:
            if error.status != 0 or isinstance(error, Gone):
                await self._lose_place(error)
                return None
            # The place is not lost with the connection: the next watch goes on from it.
            await self._wait_out(error)
        else:
            if not told and loop_time() - began < SHORTEST_WATCH:
                await self._wait_out(ApiError("the watch ended at once"))
        return version

    @asynccontextmanager
    async def _events(self, version: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """The events after ``version``; the connection is closed when the block is left."""
        events = self._gateway.watch(
            self.resource, namespace=self._namespace, selector=self._selector, resource_version=version
        )
        try:
            yield events
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _apply(self, event: WatchEvent) -> str:
        """Take over one event. Returns its resource version."""
        try:
            if event.type == "BOOKMARK":
                return decode_plain(event.object).metadata.resource_version
            if event.type == "DELETED":
                metadata = decode_plain(event.object).metadata
                self._delete(metadata.key)
                return metadata.resource_version
            read = self._read(event.object)
        except Unreadable as error:
            self._skip(event.object, error)
            return ""
        self._put(read)
        return read.version

    def _read(self, body: bytes) -> _Read[T]:
        """Decode an object, and keep of it what is read. Raises Unreadable."""
        record = self._decode(body)
        try:
            value = self._convert(record)
        except Exception as error:  # whoever made the object must not end the informer
            raise Unreadable(f"{type(error).__name__}: {error}") from error
        return _Read(record.metadata.key, record.metadata.uid, record.metadata.resource_version, value)

    def _skip(self, body: bytes, error: Unreadable) -> Key | None:
        """An object cannot be read: say so once. What was known of it stays, and the others are read. Returns its
        key, if at least that can be read."""
        self._on_unreadable(self.resource.kind)
        key: Key | None = None
        with suppress(Unreadable):
            key = decode_plain(body).metadata.key
        subject = body[:200] if key is None else key
        if self._unreadable.is_new(subject):
            name = "/".join(key) if key is not None else repr(subject)
            log.error("%s %s cannot be read and is ignored: %s", self.resource.kind, name, str(error)[:300])
        return key

    def _put(self, read: _Read[T]) -> None:
        key, uid, _, after = read
        if self._uids.get(key, uid) != uid:
            self._delete(key)  # another object under the old name: the end of the first was missed
        before = self._values.get(key)
        self._values[key], self._uids[key] = after, uid
        if before != after:
            self._tell(key, Change(before, after))

    def _delete(self, key: Key) -> None:
        before = self._values.pop(key, None)
        self._uids.pop(key, None)
        if before is not None:
            self._tell(key, Change(before, None))

    def _tell(self, key: Key, change: Change[T]) -> None:
        """Report a change. One that was not taken over is reported again by the next list."""
        try:
            self._on_change(change)
        except Exception:
            if change.before is None:
                self._values.pop(key, None)
            else:
                self._values[key] = change.before
            raise

    async def _lose_place(self, error: ApiError) -> None:
        """Wait before the next list; say so once, unless it is a matter of routine."""
        self._places_lost += 1
        if self._places_lost == 1 and not isinstance(error, Gone):
            log.warning("%s: the watch ended: %s; listing again", self._title(), error.message)
        # A server that forgot our place forgot everybody's: not all should list at the same moment.
        await asyncio.sleep(self._backoff.delay(self._places_lost, at_least=error.retry_after))

    async def _wait_out(self, error: ApiError) -> None:
        """Wait before the next attempt; say so at the first of an outage."""
        self._failures += 1
        if self._failures == 1:
            log.warning("%s: %s; trying again until it answers", self._title(), error.message)
        await asyncio.sleep(self._backoff.delay(self._failures, at_least=error.retry_after))

    def _recovered(self) -> None:
        if self._failures:
            log.info("%s: the API server answers again, after %d attempts", self._title(), self._failures)
            self._failures = 0

    def _title(self) -> str:
        where = f"in namespace {self._namespace}" if self._namespace is not None else "in all namespaces"
        return f"watching {self.resource.plural} {where}"
