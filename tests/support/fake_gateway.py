"""A Gateway in memory that behaves like an API server, and misbehaves on request."""

from __future__ import annotations

import asyncio
import copy
import itertools
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from dtj.api.json import JsonObject, apply_merge_patch, dig, object_at, text
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Gone, NotFound, Unavailable
from dtj.kube.gateway import Discovery, Listing, Resource, WatchEvent
from dtj.kube.job_body import JobObject, job_from_object
from dtj.kube.records import Key

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True)
class Call:
    """One call that was made. Reads are calls too."""

    verb: str
    plural: str
    name: str = ""
    body: JsonObject = field(default_factory=dict)
    dry_run: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.plural} {self.name}".strip()


@dataclass
class _Fault:
    verb: str
    plural: str
    error: ApiError
    times: int
    name: str
    takes_effect: bool


@dataclass
class Line:
    """One event of the history that watches tell."""

    version: int
    plural: str
    type: EventType
    body: JsonObject


class _Watcher:
    """One open watch."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.error: ApiError | None = None


class FakeGateway:
    """Objects, resource versions and watches in memory. All calls take ``latency`` seconds of the loop's time."""

    def __init__(self, *, latency: float = 0.0) -> None:
        self.latency = latency
        self.terminates_slowly = False
        """Whether what is deleted stays for its grace period; it must be asked to stop by somebody else then."""

        self.installed: set[Resource] = set()
        """What discovery finds next to what every API server has."""

        self._withdrawn: set[Resource] = set()
        self.calls: list[Call] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._objects: dict[str, dict[Key, JsonObject]] = {}
        self._versions = itertools.count(1)
        self._version = 0
        self._log: list[Line] = []
        self._oldest = 0
        self._faults: list[_Fault] = []
        self._watchers: set[_Watcher] = set()
        self._lagging = False
        self._slow_answers: dict[tuple[str, str], float] = {}

    # -- what tests do -----------------------------------------------------------------------------------------

    def fail(
        self,
        verb: str,
        resource: Resource,
        error: ApiError,
        *,
        times: int = 1,
        name: str = "",
        takes_effect: bool = False,
    ) -> None:
        """Let the next calls fail; ``takes_effect`` lets them work and lose their answer."""
        self._faults.append(_Fault(verb, resource.plural, error, times, name, takes_effect))

    def withdraw(self, resource: Resource) -> None:
        """No longer serve this version of an API; another shows the same objects."""
        self.installed.discard(resource)
        self._withdrawn.add(resource)
        self.break_watches(ApiError("the server could not find the requested resource", status=404))

    def serve(self, resource: Resource) -> None:
        """Serve again what was withdrawn."""
        self.installed.add(resource)
        self._withdrawn.discard(resource)

    def answer_late(self, verb: str, resource: Resource, seconds: float) -> None:
        """Let these calls take effect as usual, and have their answers so long on the way."""
        self._slow_answers[verb, resource.plural] = seconds

    def restore(self, resource: Resource, bodies: Sequence[JsonObject], *, version: int) -> None:
        """Replace what is stored by a backup: versions go on from this one, and watches get no event."""
        self._objects[resource.plural] = {
            (text(dig(body, "metadata", "namespace")), text(dig(body, "metadata", "name"))): body for body in bodies
        }
        self._versions, self._version = itertools.count(version + 1), version
        self._log = [line for line in self._log if line.version <= version]

    def heal(self) -> None:
        """No call fails any more."""
        self._faults.clear()

    def put(self, resource: Resource, body: JsonObject) -> JsonObject:
        """Create or replace an object, as somebody else would; its watch event follows."""
        metadata = object_at(body, "metadata")
        key = (text(metadata.get("namespace"), "default"), text(metadata.get("name")))
        known = self._of(resource).get(key)
        uid = text(metadata.get("uid")) or text(dig(known, "metadata", "uid")) or f"uid-{next(self._versions)}"
        stored: JsonObject = {**body, "metadata": {**metadata, "namespace": key[0], "uid": uid}}
        return self._store(resource, key, stored, "ADDED" if known is None else "MODIFIED")

    def remove(self, resource: Resource, name: str, *, namespace: str = "default", silently: bool = False) -> None:
        """Make an object vanish; ``silently`` means that no watch gets an event."""
        body = self._of(resource).pop((namespace, name))
        if silently:
            self._version = next(self._versions)
        else:
            self._announce(resource, "DELETED", body)

    def bookmark(self, resource: Resource) -> None:
        """Tell watches how far they have come."""
        self._announce(resource, "BOOKMARK", {"metadata": {}})

    def compact(self) -> None:
        """Forget what happened until now: a watch from before it gets 410 when it is resumed."""
        self._oldest = self._version

    def expire_watches(self) -> None:
        """Forget history, and end all watches with 410."""
        self._version = next(self._versions)
        self.compact()
        self.break_watches(Gone("too old resource version"))

    def break_watches(self, error: ApiError) -> None:
        """End all open watches with ``error``."""
        for watcher in self._watchers:
            watcher.error = error
        self._tell()

    def lag(self) -> None:
        """Hold back all watch events until :meth:`catch_up`."""
        self._lagging = True

    def catch_up(self) -> None:
        """Deliver what was held back."""
        self._lagging = False
        self._tell()

    def names(self, resource: Resource) -> list[str]:
        """Names of the objects that are there, in order."""
        return sorted(name for _, name in self._of(resource))

    def body(self, resource: Resource, name: str, *, namespace: str = "default") -> JsonObject:
        return self._of(resource)[namespace, name]

    def history(self, resource: Resource) -> list[Line]:
        """All that ever happened to objects of this kind, save what happened silently."""
        return [line for line in self._log if line.plural == resource.plural]

    def writes(self) -> list[str]:
        """Calls that change something, as ``verb plural name``, in order."""
        return [str(call) for call in self.calls if call.verb in ("create", "patch", "delete") and not call.dry_run]

    # -- the Gateway -------------------------------------------------------------------------------------------

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        await self._called(Call("list", resource.plural))
        if resource in self._withdrawn:
            raise NotFound("the server could not find the requested resource", status=404)
        found = [body for body in self._of(resource).values() if matches(body, namespace, selector)]
        listing = Listing(tuple(map(msgspec.json.encode, found)), str(self._version))
        await self._answer_on_its_way("list", resource.plural)
        return listing

    async def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        yield await self.list(resource, namespace=namespace, selector=selector)

    async def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        await self._called(Call("watch", resource.plural))
        seen = int(resource_version)
        if seen < self._oldest:
            raise Gone("too old resource version")
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            while True:
                watcher.news.clear()
                new = bisect_right(self._log, seen, key=lambda line: line.version)
                for line in [] if self._lagging else self._log[new:]:
                    seen = line.version  # of other kinds, too: a watch of few events looks at no line twice
                    if line.plural == resource.plural and (
                        line.type == "BOOKMARK" or matches(line.body, namespace, selector)
                    ):
                        yield WatchEvent(line.type, msgspec.json.encode(line.body))
                if watcher.error is not None:
                    raise watcher.error
                await watcher.news.wait()
        finally:
            self._watchers.discard(watcher)

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        await self._called(Call("get", resource.plural, name))
        return copy.deepcopy(self._existing(resource, (namespace or "", name)))

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        await self._called(Call("discover", "groups", ""))
        groups = {resource.group for resource in resources}
        return Discovery(
            served=tuple(resource for resource in resources if resource in self.installed),
            versions=tuple(sorted({there.api_version for there in self.installed if there.group in groups})),
        )

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        name = text(dig(body, "metadata", "name"))

        def effect() -> JsonObject:
            if (namespace, name) in self._of(resource):
                raise AlreadyExists(f'{resource.plural} "{name}" already exists', status=409, reason="AlreadyExists")
            return body if dry_run else self.put(resource, copy.deepcopy(body))

        return await self._called(Call("create", resource.plural, name, body, dry_run), effect)

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        def effect() -> JsonObject:
            stored = self._existing(resource, (namespace, name))
            for precondition in ("resourceVersion", "uid"):
                expected = dig(patch, "metadata", precondition)
                if expected is not None and expected != dig(stored, "metadata", precondition):
                    raise Conflict("the object has been modified", status=409, reason="Conflict")
            merged = apply_merge_patch(stored, patch)
            return self._store(resource, (namespace, name), merged, "MODIFIED")

        return copy.deepcopy(await self._called(Call("patch", resource.plural, name, patch), effect))

    async def patch_job_status(self, resource: Resource, *, namespace: str, name: str, patch: JsonObject) -> JobObject:
        return job_from_object(
            await self.patch(resource, namespace=namespace, name=name, patch=patch, subresource="status")
        )

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str = "", resource_version: str = ""
    ) -> None:
        def effect() -> JsonObject:
            stored = self._to_delete(resource, (namespace, name), uid=uid, resource_version=resource_version)
            if not self.terminates_slowly:
                self.remove(resource, name, namespace=namespace)
            return stored

        await self._called(Call("delete", resource.plural, name), effect)

    # -- within ------------------------------------------------------------------------------------------------

    async def _called(self, call: Call, effect: Callable[[], JsonObject] = dict) -> JsonObject:
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency)
            fault = self._take_fault(call)
            if fault is None:
                result = effect()
                if call.verb != "list":
                    await self._answer_on_its_way(call.verb, call.plural)
                return result
            if fault.takes_effect:
                effect()
            raise fault.error
        finally:
            self.in_flight -= 1

    async def _answer_on_its_way(self, verb: str, plural: str) -> None:
        if seconds := self._slow_answers.get((verb, plural)):
            await asyncio.sleep(seconds)

    def _take_fault(self, call: Call) -> _Fault | None:
        for fault in self._faults:
            if (fault.verb, fault.plural) == (call.verb, call.plural) and fault.name in ("", call.name):
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault
        return None

    def _of(self, resource: Resource) -> dict[Key, JsonObject]:
        return self._objects.setdefault(resource.plural, {})

    def _to_delete(self, resource: Resource, key: Key, *, uid: str, resource_version: str) -> JsonObject:
        """What is stored, if the preconditions of the deletion hold. Raises NotFound, Conflict."""
        stored = self._existing(resource, key)
        if uid not in ("", dig(stored, "metadata", "uid")):
            raise Conflict("precondition failed: UID", status=409, reason="Conflict")
        if resource_version not in ("", dig(stored, "metadata", "resourceVersion")):
            raise Conflict("precondition failed: resource version", status=409, reason="Conflict")
        return stored

    def _existing(self, resource: Resource, key: Key) -> JsonObject:
        if key not in self._of(resource):
            raise NotFound(f'{resource.plural} "{key[1]}" not found', status=404, reason="NotFound")
        return self._of(resource)[key]

    def _store(self, resource: Resource, key: Key, body: JsonObject, event: EventType) -> JsonObject:
        stored = self._announce(resource, event, body)
        self._of(resource)[key] = stored
        return stored

    def _announce(self, resource: Resource, event: EventType, body: JsonObject) -> JsonObject:
        self._version = next(self._versions)
        metadata = object_at(body, "metadata")
        current: JsonObject = {**body, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        self._log.append(Line(self._version, resource.plural, event, current))
        self._tell()
        return current

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher.news.set()


class DeniesOneNamespace(FakeGateway):
    """The objects of this kind are not listed in the namespace "first"."""

    def __init__(self, denied: Resource) -> None:
        super().__init__()
        self.denied: Resource | None = denied

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        if (resource, namespace) == (self.denied, "first"):
            raise Forbidden("no right in this namespace", status=403)
        return await super().list(resource, namespace=namespace, selector=selector)


NO_ANSWER = Unavailable("connection refused")


def matches(body: JsonObject, namespace: str | None, selector: str) -> bool:
    """Selectors that ask whether labels are there, or have a value, are all that is needed."""
    labels = dig(body, "metadata", "labels")
    for each in filter(None, selector.split(",")):
        name, equals, value = each.partition("=")
        found = dig(labels, name)
        if found is None or (equals and found != value):
            return False
    return namespace in (None, dig(body, "metadata", "namespace"))
