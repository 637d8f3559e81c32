"""Objects in memory with the manners of an API server: UIDs, resource versions, preconditions, merge patches, watches.

It knows no kind of object; what happens to pods is :mod:`dtj.local.kubelet`'s business.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from dtj.api.job import micro_time
from dtj.api.json import JsonObject, apply_merge_patch, dig, fields_of, object_at, text
from dtj.kube.errors import AlreadyExists, Conflict, NotFound
from dtj.kube.gateway import Listing, Resource, WatchEvent

Key = tuple[Resource, str, str]
"""Resource, namespace, name."""


@dataclass(frozen=True, slots=True)
class _Occurrence:
    version: int
    resource: Resource
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    body: JsonObject


class Objects:
    """All objects of one run. What goes in and comes out is copied, so nobody shares it."""

    def __init__(self) -> None:
        self._objects: dict[Key, JsonObject] = {}
        self._history: list[_Occurrence] = []  # whole: one run has a few hundred at most
        self._changed = asyncio.Event()

    def list(self, resource: Resource, *, namespace: str | None, selector: str) -> Listing:
        """Those in the namespace (None: in all) with the labels of ``selector``."""
        found = tuple(
            msgspec.json.encode(body)
            for (kind, _, _), body in self._objects.items()
            if kind == resource and _selected(body, namespace, selector)
        )
        return Listing(items=found, resource_version=str(len(self._history)))

    async def watch(
        self, resource: Resource, *, namespace: str | None, selector: str, after: int
    ) -> AsyncIterator[WatchEvent]:
        """What happened after version ``after``, and what happens from now on; without end."""
        while True:
            self._changed.clear()
            for occurrence in self._history[after:]:
                after = occurrence.version
                if occurrence.resource == resource and _selected(occurrence.body, namespace, selector):
                    yield WatchEvent(occurrence.type, msgspec.json.encode(occurrence.body))
            if after == len(self._history):
                await self._changed.wait()

    def get(self, key: Key) -> JsonObject:
        """A copy of the object. Raises NotFound."""
        return copy.deepcopy(self._find(key))

    def ever(self) -> tuple[JsonObject, ...]:
        """The last that is known of each object there ever was, in the order in which they came."""
        return tuple({text(dig(o.body, "metadata", "uid")): o.body for o in self._history}.values())

    def create(self, key: Key, body: JsonObject) -> JsonObject:
        """Store a new object with identity and version. Raises AlreadyExists."""
        if key in self._objects:
            raise AlreadyExists(f'{key[0].plural} "{key[2]}" already exists', status=409, reason="AlreadyExists")
        created = copy.deepcopy(body)
        object_at(created, "metadata").update(
            namespace=key[1], name=key[2], uid=str(uuid.uuid4()), generation=1, creationTimestamp=timestamp()
        )
        return self._store(key, created, "ADDED")

    def patch(self, key: Key, patch: JsonObject) -> JsonObject:
        """Merge ``patch`` in; a UID or resource version in it is a precondition. Raises NotFound, Conflict."""
        body = self._find(key)
        for field in ("uid", "resourceVersion"):
            wanted = dig(patch, "metadata", field)
            if wanted is not None and wanted != dig(body, "metadata", field):
                raise Conflict(f'{key[0].plural} "{key[2]}" has another {field}', status=409, reason="Conflict")
        merged = apply_merge_patch(body, copy.deepcopy(patch))
        return copy.deepcopy(body) if merged == body else self._store(key, merged, "MODIFIED")

    def remove(self, key: Key) -> None:
        """The object is gone. Raises NotFound."""
        body = self._find(key)
        self._record(key, body, "DELETED")
        del self._objects[key]

    def _find(self, key: Key) -> JsonObject:
        found = self._objects.get(key)
        if found is None:
            raise NotFound(f'{key[0].plural} "{key[2]}" not found', status=404, reason="NotFound")
        return found

    def _store(self, key: Key, body: JsonObject, kind: Literal["ADDED", "MODIFIED"]) -> JsonObject:
        self._objects[key] = self._record(key, body, kind)
        return self.get(key)

    def _record(self, key: Key, body: JsonObject, kind: Literal["ADDED", "MODIFIED", "DELETED"]) -> JsonObject:
        version = len(self._history) + 1
        recorded = {**body, "metadata": {**object_at(body, "metadata"), "resourceVersion": str(version)}}
        self._history.append(_Occurrence(version, key[0], kind, recorded))
        self._changed.set()
        return recorded


def timestamp(in_seconds: float = 0) -> str:
    """Now, or a moment to come, finer than an API server writes it, so that the first of two failures can be found."""
    return micro_time(datetime.now(UTC) + timedelta(seconds=in_seconds))


def _selected(body: JsonObject, namespace: str | None, selector: str) -> bool:
    """Whether the object is in the namespace and has the labels: ``key=value`` or ``key``, joined by commas."""
    if namespace is not None and dig(body, "metadata", "namespace") != namespace:
        return False
    labels = fields_of(dig(body, "metadata", "labels"))
    return all(_has(labels, term) for term in selector.split(",") if term)


def _has(labels: Mapping[str, object], term: str) -> bool:
    key, equals, value = term.partition("=")
    return labels.get(key) == value if equals else key in labels
