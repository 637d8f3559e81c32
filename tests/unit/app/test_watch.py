"""The real kopf watches the jobs of an API server on loopback, which sends what it has sent to others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import kopf
import pytest

from builders import NOW, manifest
from dtj.api.json import JsonObject, dig, text
from dtj.app.watch import JobWatch, QuietRetries
from dtj.core.platform import Platform
from dtj.engine.feed import JobFeed
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.supervision import Supervisor
from dtj.kube.errors import ApiError, Gone, TooManyRequests, Unavailable
from dtj.kube.events import EventRecorder
from dtj.kube.gateway import JOBS
from dtj.kube.job_body import JobObject
from dtj.kube.records import Key
from dtj.kube.waiting import Backoff
from patience import PATIENCE_SECONDS
from support.fake_gateway import FakeGateway
from support.http_api import HttpApi


class RecordedFeed(JobFeed):
    """Remembers what it got, in order: UIDs, each with the version that is there, or "gone"."""

    news: list[tuple[str, str]]

    def put(self, job: JobObject) -> None:
        self.news.append((job.metadata.uid, job.metadata.resource_version))
        super().put(job)

    def remove(self, key: Key, *, uid: str) -> None:
        self.news.append((uid, "gone"))
        super().remove(key, uid=uid)


class Watched:
    """kopf, an API server, and a store of jobs."""

    def __init__(self, api: HttpApi) -> None:
        self.api = api
        self.gateway = api.gateway
        self.state = ClusterState(Platform())
        queue: WorkQueue[Key] = WorkQueue(backoff=Backoff(base=1.0, cap=1.0))
        recorder = EventRecorder(self.gateway, instance="test", now=lambda: NOW)
        self.feed = RecordedFeed(state=self.state, queue=queue, recorder=recorder, supervisor=Supervisor())
        self.feed.news = []
        backoff = Backoff(base=0.01, cap=0.05)
        self.watch = JobWatch(self.feed, self._connect, namespaces=("default",), backoff=backoff)

    async def _connect(self) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=self.api.url, trust_env=False)

    def put(self, name: str, uid: str, **spec: object) -> JsonObject:
        metadata: JsonObject = {"name": name, "uid": uid, "generation": 1}
        return self.gateway.put(JOBS, {**manifest(name, **spec), "metadata": metadata})  # type: ignore[arg-type]

    def remove(self, name: str) -> None:
        self.gateway.remove(JOBS, name)

    @property
    def known(self) -> dict[str, str]:
        return {record.name: record.uid for record in self.state.jobs}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_known(self, **expected: str) -> None:
        try:
            await self.until(lambda: self.known == expected)
        except TimeoutError:
            pytest.fail(f"the store has {self.known}, not {expected}; told: {self.feed.news}; asked: {self.api.asked}")

    async def until_all_is_reported(self) -> None:
        """The last event that the API server has of each job was handled; kopf handles those of a UID in order."""
        last = {}
        for line in self.gateway.history(JOBS):
            uid, version = (text(dig(line.body, "metadata", each)) for each in ("uid", "resourceVersion"))
            last[uid] = "gone" if line.type == "DELETED" else version
        await self.until(lambda: set(last.items()) <= set(self.feed.news))

    async def until_asked(self, what: str, times: int) -> None:
        await self.until(lambda: self.api.asked[f"{what} {JOBS.plural}"] >= times)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    async with HttpApi(FakeGateway()) as api:
        found = Watched(api)
        found.put("marker", "m")
        task = asyncio.create_task(found.watch.run())
        await found.until_known(marker="m")
        await found.until_asked("open", 1)
        try:
            yield found
            assert not task.done(), "nothing may end the watch"
        finally:
            task.cancel()
            await asyncio.wait([task])


def versions(watched: Watched, name: str, uid: str, count: int) -> None:
    for number in range(count):
        watched.put(name, uid, runPolicy={"backoffLimit": number})


@pytest.mark.parametrize("changes", [0, 1, 2, 5])
async def test_a_burst_of_a_deleted_job_and_its_successor_leaves_the_successor(changes: int) -> None:
    """kopf handles the events of each UID in a task of its own: those of the old job come after the new one's."""
    async with watched() as job:
        job.put("digits", "old")
        await job.until_all_is_reported()
        job.gateway.lag()
        versions(job, "digits", "old", changes)
        job.remove("digits")
        job.put("digits", "new")
        job.gateway.catch_up()
        await job.until_all_is_reported()
        assert job.known == {"marker": "m", "digits": "new"}, job.feed.news


@pytest.mark.parametrize("ends", [False, True], ids=["and stays", "and ends"])
async def test_a_burst_of_many_lives_of_one_name_leaves_the_last_one(ends: bool) -> None:
    async with watched() as job:
        job.gateway.lag()
        for life in range(20):
            versions(job, "digits", f"life-{life}", life % 4 + 1)
            job.remove("digits")
        job.put("digits", "last")
        if ends:
            job.remove("digits")
        job.gateway.catch_up()
        await job.until_all_is_reported()
        uids = (text(dig(line.body, "metadata", "uid")) for line in job.gateway.history(JOBS))
        in_order, told = (list(dict.fromkeys(found)) for found in (uids, (uid for uid, _ in job.feed.news)))
        assert told != in_order, "kopf keeps the order now: is all this needed?"
        assert job.known == {"marker": "m"} | ({} if ends else {"digits": "last"}), job.feed.news


ERRORS = {
    "410": Gone("too old resource version", status=410, reason="Expired"),
    "429": TooManyRequests("slow down", status=429, reason="TooManyRequests"),
    "500": Unavailable("etcdserver: leader changed", status=500, reason="InternalError"),
    "504": Unavailable("Timeout: Too large resource version: 9, current: 4", status=504, reason="Timeout"),
    "unknown": Unavailable("something new", status=599, reason="Unknown"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_an_error_in_the_watch_ends_in_a_fresh_list_and_a_new_watch(error: ApiError) -> None:
    async with watched() as job:
        job.gateway.lag()
        job.put("missed", "1")
        job.gateway.break_watches(error)
        job.gateway.catch_up()
        await job.until_known(marker="m", missed="1")
        await job.until_asked("list", 2)
        await job.until_asked("open", 2)
        job.put("later", "2")
        await job.until_known(marker="m", missed="1", later="2")


async def test_errors_in_a_row_are_survived_and_reported_in_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(QuietRetries())
    caplog.set_level(logging.WARNING)
    async with watched() as job:
        for times in range(2, 5):
            job.gateway.break_watches(ERRORS["500"])
            await job.until_asked("open", times)
        job.put("later", "2")
        await job.until_known(marker="m", later="2")
    assert len(caplog.messages) == 3, caplog.messages
    beginning = "the watch on jobs ended: etcdserver: leader changed; the operator lists and watches jobs again in "
    assert all(message.startswith(beginning) for message in caplog.messages), caplog.messages


async def test_a_restored_etcd_is_watched_from_its_own_versions() -> None:
    async with watched() as job:
        versions(job, "marker", "m", 30)
        await job.until_all_is_reported()
        metadata: JsonObject = {"name": "marker", "namespace": "default", "uid": "m", "resourceVersion": "3"}
        backup: JsonObject = {**manifest("marker"), "metadata": metadata}
        job.gateway.restore(JOBS, [backup], version=5)
        await job.feed.relist(job.gateway, None)
        await job.until_asked("open", 2)
        job.put("later", "2")
        await job.until_known(marker="m", later="2")
        assert len(job.known) == 2
