"""The way of jobs into the engine: one by one as a watch tells of them, and all at once from a list.

The list is there for what a watch can miss: kopf is never told of a job that vanished while its watch was being
renewed after a 410, and would keep it for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from dtj.api.json import JsonObject
from dtj.engine.expectations import Expectations
from dtj.engine.logs import about
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.stores import JobRecord
from dtj.kube.backoff import Backoff
from dtj.kube.errors import ApiError
from dtj.kube.events import EventRecorder
from dtj.kube.gateway import JOBS, Gateway
from dtj.kube.records import Key

log = logging.getLogger(__name__)


class JobFeed:
    """Keeps the store of jobs true, and puts the key of each changed job into the queue."""

    def __init__(
        self,
        *,
        state: ClusterState,
        queue: WorkQueue[Key],
        expectations: Expectations,
        recorder: EventRecorder,
    ) -> None:
        self._state = state
        self._queue = queue
        self._expectations = expectations
        self._recorder = recorder

    def put(self, body: JsonObject) -> None:
        """A job was created or changed, or is simply there."""
        record = JobRecord.from_object(body)
        known = self._state.jobs.get(record.job.key)
        if known is not None and known.job.uid != record.job.uid:
            self._forget(known)  # deleted and created again faster than we were told
        if self._state.jobs.put(record):
            if known is None:
                log.debug("is watched from now on", extra=about(record.job, action="watch"))
            self._queue.add(record.job.key)

    def remove(self, body: JsonObject) -> None:
        """A job is gone. What it owned is the garbage collector's business."""
        job = JobRecord.from_object(body).job
        known = self._state.jobs.get(job.key)
        if known is not None and known.job.uid == job.uid:
            self._forget(known)

    async def relist(self, gateway: Gateway, namespace: str | None) -> None:
        """List the jobs of a namespace: take over what is new to us, forget what is gone. Raises ApiError."""
        before = [record for record in self._state.jobs if namespace in (None, record.job.namespace)]
        listing = await gateway.list(JOBS, namespace=namespace)
        bodies: list[JsonObject] = [msgspec.json.decode(item) for item in listing.items]
        for body in bodies:
            self.put(body)
        there = {JobRecord.from_object(body).job.uid for body in bodies}
        for record in before:
            if record.job.uid not in there:
                self._forget(record)

    async def keep_listing(self, gateway: Gateway, namespaces: Sequence[str | None], *, every: float) -> NoReturn:
        """Relist every so many seconds. That it fails now and then is no harm: the next one follows."""
        period = Backoff(base=every, cap=every)
        while True:
            await asyncio.sleep(period.delay(1))
            for namespace in namespaces:
                try:
                    await self.relist(gateway, namespace)
                except ApiError as error:
                    log.debug("listing jobs failed: %s", error.message)

    def _forget(self, record: JobRecord) -> None:
        job = record.job
        if self._state.jobs.remove(job.key, uid=job.uid) is None:
            return
        self._state.memories.forget(job.uid)
        self._expectations.forget(job.uid)
        self._recorder.forget(job.uid)
        log.info("is gone", extra=about(job, action="forget"))
