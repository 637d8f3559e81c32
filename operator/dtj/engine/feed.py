"""The way of jobs into the engine: one by one as a watch reports them, and all at once from a list.

The watch is for speed, the list is the truth. kopf never hears of a job that vanished while its watch was renewed,
and would keep it forever; an API server whose etcd was restored from a backup leaves a watch without any event. What
is believed of either, and in which order, is for :mod:`dtj.engine.job_store` to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from dtj.api.names import Reason
from dtj.engine.job_store import JobRecord, News
from dtj.engine.logs import about
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.supervision import Supervisor
from dtj.kube.decoding import Once, Unreadable
from dtj.kube.errors import ApiError
from dtj.kube.events import EventRecorder, Subject
from dtj.kube.gateway import JOBS, Gateway, Resource
from dtj.kube.job_body import JobObject, read_job
from dtj.kube.records import Key, Metadata, decode_plain, version_number
from dtj.kube.waiting import Backoff

log = logging.getLogger(__name__)

SOON_SECONDS: Final = 1.0
"""How long a list that is wanted soon waits: a watch that is renewed says so once for each job."""

SHORTEST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two lists that are wanted soon: the time grows while they fail."""

MAX_READ_AT_ONCE: Final = 100
"""Entries of a list that are read before the event loop gets to do something else. An entry that did not change costs
some 5 µs, another one 0.1 ms."""


class JobFeed:
    """Keeps the store of jobs true, and puts the key of each changed job into the queue."""

    def __init__(
        self,
        *,
        state: ClusterState,
        queue: WorkQueue[Key],
        recorder: EventRecorder,
        supervisor: Supervisor,
        resource: Resource = JOBS,
        on_unreadable: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self._state = state
        self._queue = queue
        self._recorder = recorder
        self._supervisor = supervisor
        self._on_unreadable = on_unreadable
        self._unread = Once()
        self.resource = resource
        self._wanted = asyncio.Event()
        self.on_turned_back: Callable[[], None] = lambda: None
        """Called when a list shows that the API server went back to an older history: a watch that goes on from before
        would see nothing for a long time."""

    def put(self, job: JobObject) -> None:
        """A job was created or changed, or is simply there. What goes wrong with it is made good by a list."""
        over = False
        with self._supervisor.sparing("watch on jobs"):
            metadata = job.metadata
            key = (metadata.namespace, metadata.name)
            if not self._state.jobs.holds(key, uid=metadata.uid, version=metadata.resource_version):
                record = JobRecord.of(job)
                self._note(record, self._state.jobs.put(record))
            over = True
        if not over:
            self.relist_soon()

    def remove(self, key: Key, *, uid: str) -> None:
        """A job is gone. What it owned is the garbage collector's business."""
        with self._supervisor.sparing("watch on jobs"):
            self._forget(self._state.jobs.remove(key, uid=uid))

    def relist_soon(self) -> None:
        """Have all jobs listed: there is reason to think that the store knows one that is gone, or an old version."""
        self._wanted.set()

    async def relist(self, gateway: Gateway, namespace: str | None) -> None:
        """List the jobs of a namespace: take over what is new to us, forget what is gone. Raises ApiError."""
        jobs = self._state.jobs
        listed_at, newest = jobs.moment, jobs.newest
        present: set[str] = set()
        number_listed = 0
        version = ""
        async for page in gateway.pages(self.resource, namespace=namespace):
            version = page.resource_version
            number_listed += len(page.items)
            for number, item in enumerate(page.items, start=1):
                with self._supervisor.sparing("list of jobs"):
                    metadata = decode_plain(item).metadata
                    present.add(metadata.uid)
                    if not jobs.holds(metadata.key, uid=metadata.uid, version=metadata.resource_version):
                        self._merge(item, metadata, listed_at=listed_at)
                if number % MAX_READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
        # One whose identity cannot be read may be any of those that are missing.
        missing = jobs.missing(namespace, present, listed_at=listed_at) if len(present) == number_listed else []
        for record in missing:
            self._forget(jobs.remove(record.key, uid=record.uid))
        if (listed := version_number(version)) is not None and listed < newest:
            log.warning(
                "the API server went back from version %d to %s of its history: all jobs are read and watched again",
                newest,
                version,
            )
            jobs.turned_back(version)
            self.on_turned_back()

    def _merge(self, item: bytes, metadata: Metadata, *, listed_at: int) -> None:
        try:
            record = JobRecord.of(read_job(item))
        except Unreadable as error:
            self._unreadable(metadata, error)
        else:
            self._note(record, self._state.jobs.merge(record, listed_at=listed_at))

    def _unreadable(self, metadata: Metadata, error: Unreadable) -> None:
        """Tell the job's owner, once. What was known of the job stays."""
        self._on_unreadable(self.resource.kind)
        if self._unread.is_new(metadata.uid):
            kind = self.resource
            subject = Subject(metadata.namespace, metadata.name, metadata.uid, kind.api_version, kind.kind)
            words = f"the operator cannot read this job, and does nothing for it: {str(error)[:300]}"
            self._recorder.record(subject, "Warning", Reason.INVALID_SPEC, words)
            log.error("%s/%s: %s", metadata.namespace, metadata.name, words)

    async def keep_listing(self, gateway: Gateway, namespaces: Sequence[str | None], *, every: float) -> NoReturn:
        """Relist at a fixed interval, and when it is wanted soon. A list that fails is tried again."""
        period = Backoff(base=every, cap=every)
        pause, failures = Backoff(base=min(SHORTEST_PAUSE, every), cap=LONGEST_PAUSE), 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(period.delay(1)):
                    await self._wanted.wait()
                    await asyncio.sleep(SOON_SECONDS)
            self._wanted.clear()
            failed = False
            for namespace in namespaces:
                try:
                    await self.relist(gateway, namespace)
                except ApiError as error:
                    log.debug("listing jobs of %s failed: %s", namespace or "all namespaces", error.message)
                    failed = True
            failures = failures + 1 if failed else 0
            if failed:
                self._wanted.set()
            await asyncio.sleep(pause.delay(max(failures, 1)))

    def _note(self, record: JobRecord, news: News) -> None:
        """Tell those whom it concerns what a piece of news changed."""
        if news.changed:
            self._queue.add(record.key)
        self._forget(news.over)

    def _forget(self, record: JobRecord | None) -> None:
        """That job is over: nothing of it is kept."""
        if record is None:
            return
        self._state.caches.forget(record.uid)
        self._state.expectations.forget(record.identity)
        self._recorder.forget(record.uid)
        log.info("is gone", extra=about(record, action="forget"))
