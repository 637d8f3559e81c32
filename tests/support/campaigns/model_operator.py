"""An operator in a cluster of the campaigns: the real engine and planner, and next to them what kopf does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import NoReturn

from builders import NOW
from dtj.api.form import DTJ, Form
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.clock import ServerClock
from dtj.kube.errors import ApiError
from dtj.kube.gateway import Listing, Resource, jobs_of
from dtj.kube.job_body import JobObject, read_job
from support.campaigns.model_api import ModelApi
from support.virtual_time import loop_time

WITH_CONFIG_MAPS = Platform(inline_addresses=0)
"""On which a job of any size has a ConfigMap with its addresses."""

BURST_SECONDS = 0.1
"""For how long kopf waits for more events of an object."""


class Operator:
    """One operator at work: the engine, and next to it what kopf does in a process."""

    def __init__(
        self, api: ModelApi, *, form: Form = DTJ, platform: Platform = WITH_CONFIG_MAPS, clock: float = 0.0
    ) -> None:
        self._api = api
        self._jobs = jobs_of(form)
        self.ahead = clock
        self._clock = ServerClock(local=lambda: _wall(self.ahead), monotonic=loop_time)
        api.on_answer = [lambda: self._clock.observe(format_datetime(_wall(api.ahead), usegmt=True))]
        self.reorders = False
        """Whether events of jobs come as kopf passes on a burst: those of one UID in order, the UIDs in any."""

        self._burst: dict[str, list[tuple[str, JobObject]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.engine = Engine(
            api,
            plan=plan,
            platform=platform,
            instance="model",
            form=form,
            settings=EngineSettings(workers=4, relist_every=60.0),
            now=self._clock.now,
        )
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        """Nothing that it began goes on. Raises what has ended it before, if something has."""
        if self._task.done():
            self._task.result()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.engine.run())
            group.create_task(self._watch_jobs())

    def list_late(self) -> Callable[[], None]:
        """List all jobs now, for an answer that comes when what is returned is called."""
        late = _LateList(self._api)
        task = asyncio.create_task(self.engine.feed.relist(late, None))  # type: ignore[arg-type]
        self._tasks.add(task)
        return late.answer.set

    async def _watch_jobs(self) -> NoReturn:
        """kopf reports each version of a job, and after a 410 of all jobs that there are; of none that is gone."""
        while True:
            try:
                listing = await self._api.list(self._jobs, namespace=None)
                for item in listing.items:
                    self.engine.feed.put(read_job(item))
                async for event in self._api.watch(
                    self._jobs, namespace=None, resource_version=listing.resource_version
                ):
                    self._take(event.type, read_job(event.object))
            except ApiError:
                await asyncio.sleep(1.0)

    def _take(self, kind: str, job: JobObject) -> None:
        if not self.reorders:
            self._tell(kind, job)
            return
        if not self._burst:
            asyncio.get_running_loop().call_later(BURST_SECONDS, self._tell_burst)
        self._burst.setdefault(job.metadata.uid, []).append((kind, job))

    def _tell_burst(self) -> None:
        burst, self._burst = self._burst, {}
        for events in reversed(burst.values()):
            for kind, job in events:
                self._tell(kind, job)

    def _tell(self, kind: str, job: JobObject) -> None:
        if kind == "DELETED":
            metadata = job.metadata
            self.engine.feed.remove((metadata.namespace, metadata.name), uid=metadata.uid)
        else:
            self.engine.feed.put(job)


class _LateList:
    """As much of a gateway as a list needs, whose answer is that of the time when it was asked for."""

    def __init__(self, api: ModelApi) -> None:
        self._api = api
        self.answer = asyncio.Event()

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        listing = await self._api.list(resource, namespace=namespace, selector=selector)
        await self.answer.wait()
        return listing

    async def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        yield await self.list(resource, namespace=namespace, selector=selector)


def _wall(ahead: float = 0.0) -> datetime:
    """A clock on the wall, which follows the loop's and is this many seconds ahead."""
    return NOW + timedelta(seconds=loop_time() + ahead)
