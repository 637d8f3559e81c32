"""An API server in memory for campaigns: it deletes pods gracefully, and each of its watches may lag, lose and travel.

What the operator is shown of a kind of object is a *view*: it may stop at some version of the store and go on from
there later, event by event or from a new list, and it may show a restarted operator a state that is over.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from builders import at
from dtj.api.json import JsonObject, apply_merge_patch, dig, object_at, text
from dtj.kube.errors import ApiError, Gone
from dtj.kube.gateway import EVENTS, JOBS, PODS, TFJOBS, Listing, Resource, WatchEvent
from dtj.kube.records import Key
from support.fake_gateway import Call, EventType, FakeGateway, Line, matches
from support.virtual_time import loop_time

GRACE_SECONDS = 30
LATENCY_SECONDS = 0.01

_TIMERS_DIFFER = 0.001
"""Timers may fire by a rounding error too early."""


@dataclass(frozen=True)
class Effect:
    """What a call of the operator's did. ``body`` is what was created, or what there was to delete, and ``job`` its
    owner as it was then."""

    verb: str
    plural: str
    body: JsonObject
    job: JsonObject | None

    @property
    def name(self) -> str:
        return text(dig(self.body, "metadata", "name"))


@dataclass
class View:
    """What watches of one kind show: all up to the version ``until`` (None: everything).

    ``listed_at`` is the version that lists show, too; None for what is there. ``lost`` counts how often the server
    forgot the place of the watches: each of them must list again then.
    """

    until: int | None = None
    listed_at: int | None = None
    lost: int = 0


class ModelApi(FakeGateway):
    """See the module. ``on_line`` is called with each event of the store, as it happens."""

    def __init__(self) -> None:
        super().__init__(latency=LATENCY_SECONDS)
        self.on_line: list[Callable[[Line], None]] = []
        self.effects: list[Effect] = []
        self._views: dict[str, View] = {}
        self._lines: dict[str, list[Line]] = {}
        self._doors: dict[asyncio.Event, None] = {}
        self._times: dict[int, float] = {}
        self._writes = 0
        self.delays: dict[str, float] = {}
        """By how many seconds events of a kind are late, all of them."""

        self.twice: set[str] = set()
        """Kinds of which each event comes twice."""

        self.late_answers: dict[int, float] = {}
        """By how many seconds the answer to the operator's n-th write is late, from 1."""

        self.on_write: Callable[[int, bool], bool] = lambda number, done: False
        """Told of the operator's n-th write before and after it takes effect; True where no answer will come."""

        self.on_answer: list[Callable[[], None]] = []
        self.ahead = 0.0
        """By how many seconds its clock is ahead of the loop's."""

        self.refused: Callable[[Call], ApiError | None] = lambda call: None
        """With what a call of the operator's is refused."""

        self.admitted: Callable[[Resource, JsonObject], JsonObject] = lambda resource, body: body
        """What webhooks make of a new object."""

        self._held: dict[str, set[tuple[str, str, str]]] = {}
        """Of the kinds on which others put finalizers, what has gone but for that: namespace, name and UID."""

    # -- views -------------------------------------------------------------------------------------------------

    def hold(self, plurals: Iterable[str], *, at: int, lists: bool = False) -> None:
        """Show nothing newer than this version of these kinds; optionally, not even to a ``list``."""
        for plural in plurals:
            self._views[plural] = View(until=at, listed_at=at if lists else None, lost=self._view(plural).lost)

    def release(self, plurals: Iterable[str], *, lost: bool = False) -> None:
        """Show all again; where the events are ``lost``, only in a new list."""
        for plural in plurals:
            self._views[plural] = View(lost=self._view(plural).lost + lost)
        self._tell()

    @property
    def version(self) -> int:
        return self._version

    def lines(self, plurals: Iterable[str]) -> list[Line]:
        """All that has happened to objects of these kinds, in order."""
        wanted = set(plurals)
        return [line for line in self._log if line.plural in wanted]

    def _view(self, plural: str) -> View:
        return self._views.setdefault(plural, View())

    # -- the Gateway -------------------------------------------------------------------------------------------

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        await self._called(Call("list", resource.plural))
        at = self._view(resource.plural).listed_at
        bodies = self._of(resource).values() if at is None else self._as_of(resource, at)
        found = [msgspec.json.encode(body) for body in bodies if matches(body, namespace, selector)]
        return Listing(tuple(found), str(self._version if at is None else at))

    async def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        await self._called(Call("watch", resource.plural))
        seen, lines, position = int(resource_version), self._lines.setdefault(resource.plural, []), 0
        lost, door = self._view(resource.plural).lost, asyncio.Event()
        self._doors[door] = None
        try:
            while True:
                view = self._view(resource.plural)
                if view.lost != lost:
                    raise Gone("too old resource version")
                if position < len(lines) and self._shows(view, lines[position]):
                    line = lines[position]
                    position += 1
                    if line.version > seen and matches(line.body, namespace, selector):
                        for _ in range(1 + (resource.plural in self.twice)):
                            yield WatchEvent(line.type, msgspec.json.encode(line.body))
                else:
                    door.clear()
                    await door.wait()
        finally:
            del self._doors[door]

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str = "", resource_version: str = ""
    ) -> None:
        def effect() -> JsonObject:
            stored = self._to_delete(resource, (namespace, name), uid=uid, resource_version=resource_version)
            self.effects.append(Effect("delete", resource.plural, stored, self._job_of(stored)))
            self.end(resource, name, namespace=namespace)
            return stored

        await self._called(Call("delete", resource.plural, name, {"uid": uid}), effect)

    # -- what others do ----------------------------------------------------------------------------------------

    def end(self, resource: Resource, name: str, *, namespace: str = "default") -> None:
        """What DELETE does: a pod that runs is asked to stop, anything else vanishes."""
        body = self.body(resource, name, namespace=namespace)
        graceful = resource == PODS and dig(body, "status", "phase") not in ("Succeeded", "Failed")
        if not graceful or dig(body, "spec", "nodeName") is None:
            self.remove(resource, name, namespace=namespace)
        elif dig(body, "metadata", "deletionTimestamp") is None:
            due = at(loop_time() + self.ahead + GRACE_SECONDS)
            deletion: JsonObject = {"deletionTimestamp": due, "deletionGracePeriodSeconds": GRACE_SECONDS}
            self.merge(resource, name, {"metadata": deletion}, namespace=namespace)

    def remove(self, resource: Resource, name: str, *, namespace: str = "default", silently: bool = False) -> None:
        """As there, but for what a finalizer holds: it is marked, and goes later."""
        metadata = object_at(self.body(resource, name, namespace=namespace), "metadata")
        if resource.plural not in self._held:
            super().remove(resource, name, namespace=namespace, silently=silently)
            return
        self._held[resource.plural].add((namespace, name, text(metadata["uid"])))
        if "finalizers" not in metadata:
            asked = metadata.get("deletionTimestamp") or at(loop_time() + self.ahead)
            marks: JsonObject = {"deletionTimestamp": asked, "finalizers": ["example.com/held"]}
            self.merge(resource, name, {"metadata": marks}, namespace=namespace)

    def holds(self, resource: Resource) -> Callable[[], None]:
        """Have finalizers on all objects of a kind until what is returned is called."""
        self._held.setdefault(resource.plural, set())

        def let_go() -> None:
            for namespace, name, uid in sorted(self._held.pop(resource.plural, ())):
                if dig(self._of(resource).get((namespace, name)), "metadata", "uid") == uid:
                    self.remove(resource, name, namespace=namespace)

        return let_go

    def merge(self, resource: Resource, name: str, change: JsonObject, *, namespace: str = "default") -> JsonObject:
        """What PATCH does, for somebody else; the job's generation counts the changes of its spec."""
        body = copy.deepcopy(self.body(resource, name, namespace=namespace))
        changed = apply_merge_patch(body, change)
        if resource in (JOBS, TFJOBS) and dig(changed, "spec") != dig(body, "spec"):
            generation = dig(body, "metadata", "generation")
            assert isinstance(generation, int)
            changed = apply_merge_patch(changed, {"metadata": {"generation": generation + 1}})
        return self.put(resource, changed)

    def _job_of(self, body: JsonObject) -> JsonObject | None:
        uid = dig(body, "metadata", "ownerReferences", 0, "uid")
        jobs = (*self._of(JOBS).values(), *self._of(TFJOBS).values())
        return next((job for job in jobs if dig(job, "metadata", "uid") == uid), None)

    def _shows(self, view: View, line: Line) -> bool:
        on_time = self._times[line.version] + self.delays.get(line.plural, 0.0) <= loop_time() + _TIMERS_DIFFER
        return on_time and (view.until is None or line.version <= view.until)

    # -- within ------------------------------------------------------------------------------------------------

    def put(self, resource: Resource, body: JsonObject) -> JsonObject:
        metadata = object_at(body, "metadata")
        key = (text(metadata.get("namespace"), "default"), text(metadata.get("name")))
        created = {"creationTimestamp": at(loop_time() + self.ahead), **metadata}
        body = {**body, "metadata": created}
        return super().put(resource, body if key in self._of(resource) else self.admitted(resource, body))

    def _as_of(self, resource: Resource, version: int) -> Iterable[JsonObject]:
        found: dict[Key, JsonObject] = {}
        for line in self._lines.get(resource.plural, []):
            if line.version > version:
                break
            key = (text(dig(line.body, "metadata", "namespace")), text(dig(line.body, "metadata", "name")))
            found.pop(key, None)
            if line.type != "DELETED":
                found[key] = line.body
        return found.values()

    async def _called(self, call: Call, effect: Callable[[], JsonObject] = dict) -> JsonObject:
        writes = call.verb in ("create", "patch", "delete") and not call.dry_run and call.plural != EVENTS.plural
        self._writes += writes
        number = self._writes if writes else 0
        if self.on_write(number, False):
            await asyncio.Event().wait()

        def noted() -> JsonObject:
            if (error := self.refused(call)) is not None:
                raise error
            stored = effect()
            if writes and call.verb == "create":
                self.effects.append(Effect("create", call.plural, stored, self._job_of(stored)))
            return stored

        try:
            return await super()._called(call, noted)
        finally:
            if self.on_write(number, True):
                await asyncio.Event().wait()
            await asyncio.sleep(self.late_answers.get(number, 0.0))
            for listener in self.on_answer:
                listener()

    def _announce(self, resource: Resource, event: EventType, body: JsonObject) -> JsonObject:
        current = super()._announce(resource, event, body)
        line = self._log[-1]
        self._lines.setdefault(resource.plural, []).append(line)
        self._times[line.version] = loop_time()
        if resource.plural in self.delays:
            asyncio.get_running_loop().call_later(self.delays[resource.plural], self._tell)
        for listener in self.on_line:
            listener(line)
        return current

    def _tell(self) -> None:
        for door in self._doors:
            door.set()
