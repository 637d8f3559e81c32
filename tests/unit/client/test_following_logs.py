"""Following the logs of a job: what there is, then what comes, whichever pods come and go, until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

import bad_tfjobs
from builders import stored
from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition, Reason
from dtj.api.tfjob.names import Label as TFJobLabel
from dtj.client.log_follower import LogFollower
from dtj.client.logs import LogSelection
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden, Unavailable
from dtj.kube.gateway import PODS, Listing, Resource, WatchEvent
from dtj.kube.pod_logs import LogQuery
from overviews import body, condition, pod_body
from support.fake_gateway import FakeGateway

RUNNING = Job.from_object(body(state="Running"))
FAILED = Job.from_object(body(condition(Condition.FAILED, "True", Reason.JOB_FINISHED, "it broke"), state="Failed"))
ENDED: JsonObject = {"terminated": {"exitCode": 0}}


class Cluster(FakeGateway):
    """Pods whose kubelets can be asked for their logs."""

    def __init__(self, job: Job = RUNNING) -> None:
        super().__init__()
        self.running = self.job = job
        self._lines: dict[str, list[bytes]] = {}
        self._errors: dict[str, ApiError] = {}
        self._over: set[str] = set()
        self._news = asyncio.Event()

    def start(self, replica: str, *lines: str) -> None:
        """A pod that runs and has written these lines."""
        self.put(PODS, pod_body(replica))
        self.write(replica, *lines)

    def write(self, title: str, *lines: str) -> None:
        written = self._lines.setdefault(f"digits-{title}", [])
        written += (f"2026-01-02T03:04:05.{len(written) + n:09d}Z {line}".encode() for n, line in enumerate(lines))
        self._tell_readers()

    def end(self, replica: str) -> None:
        """The container ends, and the pod says so."""
        self._over.add(f"digits-{replica}")
        self._tell_readers()
        self.put(PODS, pod_body(replica, phase="Succeeded", state=ENDED))

    def refuse(self, replica: str, error: ApiError) -> None:
        """The next reading of a log breaks."""
        self._errors[f"digits-{replica}"] = error
        self._tell_readers()

    def end_job(self, job: Job | None) -> None:
        """The job ends, or is deleted."""
        self.job = cast("Job", job)
        self._tell_readers()

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        return await super().list(resource, namespace=namespace, selector=selector.partition("=")[0])

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        return super().pages(resource, namespace=namespace, selector=selector.partition("=")[0])

    def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        selector = selector.partition("=")[0]
        return super().watch(resource, namespace=namespace, selector=selector, resource_version=resource_version)

    async def log(self, query: LogQuery, *, namespace: str, pod: str) -> AsyncGenerator[bytes, None]:
        place = 0
        while True:
            if pod in self._errors:
                raise self._errors.pop(pod)
            for raw in self._lines.get(pod, [])[place:]:
                place += 1
                yield raw
            if not query.follow or pod in self._over:
                return
            await self._news.wait()

    async def changes(self) -> AsyncGenerator[Job, None]:
        while self.job is self.running:
            yield self.job
            await self._news.wait()
        if self.job is not None:
            yield self.job

    def _tell_readers(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Follower:
    """Somebody who follows the logs, and what was seen so far."""

    def __init__(self, cluster: Cluster, selection: LogSelection | None = None) -> None:
        gateway = cast("KubeGateway", cast("Any", cluster))
        self._lines = LogFollower(gateway, cluster.running, selection or LogSelection(), cluster.changes).lines()

    async def until(self, words: str) -> list[str]:
        """What is printed until this line has come."""
        seen: list[str] = []
        async with asyncio.timeout(20):
            while words not in seen:
                seen.append(str(await anext(self._lines)))
        return seen

    async def rest(self) -> list[str]:
        """What is printed until the end."""
        async with asyncio.timeout(20), aclosing(self._lines) as lines:
            return [str(line) async for line in lines]


async def test_what_there_is_comes_first_then_what_comes_and_each_line_once() -> None:
    cluster = Cluster()
    cluster.start("worker-0", "a", "b")
    following = Follower(cluster)
    assert await following.until("worker-0 | b") == ["worker-0 | a", "worker-0 | b"]
    cluster.write("worker-0", "c")
    assert await following.until("worker-0 | c") == ["worker-0 | c"]
    cluster.start("worker-1", "d")
    assert await following.until("worker-1 | d") == ["digits-worker-1 has started", "worker-1 | d"]
    for replica in ("worker-0", "worker-1"):
        cluster.end(replica)
    cluster.end_job(FAILED)
    assert await following.rest() == ["digits has failed: it broke"]


async def test_pods_of_a_tfjob_that_start_later_are_followed_too() -> None:
    cluster = Cluster(Job.from_object(stored(bad_tfjobs.tfjob("digits"))))
    following = Follower(cluster)
    await following.until("digits has no such pods at present: no operator has seen it yet")
    for index in ("0", "1"):
        cluster.write(f"worker-{index}", f"of worker {index}")
        pod = pod_body(f"worker-{index}")
        labels = {TFJobLabel.JOB_NAME: "digits", TFJobLabel.REPLICA_TYPE: "worker", TFJobLabel.REPLICA_INDEX: index}
        cluster.put(PODS, {**pod, "metadata": {**object_at(pod, "metadata"), "labels": {**labels}}})
        await following.until(f"worker-{index} | of worker {index}")


async def test_a_connection_that_breaks_is_made_again_where_it_broke() -> None:
    cluster = Cluster()
    cluster.start("worker-0", "a")
    following = Follower(cluster)
    await following.until("worker-0 | a")
    cluster.refuse("worker-0", Unavailable("broken"))
    cluster.write("worker-0", "b")
    assert await following.until("worker-0 | b") == ["worker-0 | b"]
    cluster.end("worker-0")
    cluster.write("worker-0", "last words")
    cluster.end_job(FAILED)
    assert await following.rest() == ["worker-0 | last words", "digits has failed: it broke"]


async def test_what_keeps_a_pod_from_starting_is_said_once_and_what_was_left_to_run_does_not_keep_the_end() -> None:
    cluster = Cluster()
    cluster.put(PODS, pod_body("worker-0", phase="Pending", unschedulable="no node"))
    following = Follower(cluster, LogSelection(role="worker"))
    assert len(await following.until("digits-worker-0 has not started: no node")) == 1
    cluster.put(PODS, pod_body("worker-0", phase="Pending", unschedulable="no node", ago=99))
    cluster.start("worker-0", "a")
    cluster.start("ps-0", "not asked for")
    assert await following.until("worker-0 | a") == ["digits-worker-0 has started", "worker-0 | a"]
    cluster.end_job(FAILED)
    assert await following.rest() == ["digits has failed: it broke"]


async def test_a_deleted_job_ends_it() -> None:
    cluster = Cluster()
    following = Follower(cluster)
    cluster.end_job(None)
    assert await following.rest() == ["digits has no such pods at present: Running", "digits was deleted"]


async def test_a_missing_right_ends_it() -> None:
    cluster = Cluster()
    cluster.start("worker-0", "a")
    following = Follower(cluster)
    await following.until("worker-0 | a")
    cluster.refuse("worker-0", Forbidden("no right to logs"))
    with pytest.raises(Forbidden, match="no right to logs"):
        await following.rest()
