"""A finished job costs nothing but its object: packed in memory, no work at a list, awake when something happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from builders import manifest, record_of
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Label
from dtj.engine.engine import EngineSettings
from dtj.engine.metrics import Metrics
from dtj.kube.errors import Unavailable
from dtj.kube.gateway import JOBS, PODS, SERVICES
from support.campaigns.model_cluster import ModelCluster
from support.campaigns.stories import completed
from support.engine_harness import Harness, harnessed
from support.virtual_time import settled, virtual_time

METADATA: Final[JsonObject] = {
    "name": "digits",
    "namespace": "vision",
    "uid": "a",
    "resourceVersion": "17",
    "generation": 3,
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "labels": {"kueue.x-k8s.io/queue-name": "teams"},
    "annotations": {"kueue.x-k8s.io/admission-gated-by": "a.b/c", "kueue.x-k8s.io/prebuilt-workload-name": "digits"},
}
RELISTS: Final = EngineSettings(workers=2, rest=0.0, relist_every=60.0)


@pytest.mark.parametrize(
    "body",
    [
        {**manifest("digits"), "metadata": METADATA, "status": {"state": "Succeeded", "futureField": "ä"}},
        {"metadata": METADATA, "spec": {"replicaSpecs": 5}, "status": {}},
        {**manifest("digits"), "metadata": {**METADATA, "deletionTimestamp": "2026-01-02T03:04:06Z"}},
    ],
    ids=["usual", "spec that cannot be read", "deleted"],
)
def test_a_packed_job_is_the_same_when_it_is_unpacked(body: JsonObject) -> None:
    record, job = record_of(body), Job.from_object(body)
    assert record.job() == job
    assert (record.key, record.identity, record.attempt) == (job.key, job.identity, job.attempt)
    assert (record.deleting, record.state) == (job.deleting, job.status.state or "")


async def ended() -> ModelCluster:
    """A cluster whose one job has completed."""
    cluster = await completed()
    assert cluster.api.names(PODS)
    cluster.api.latency = 0.0
    return cluster


@asynccontextmanager
async def operating(cluster: ModelCluster) -> AsyncIterator[Harness]:
    """An operator that starts after the end of the job, and knows it."""
    async with harnessed(gateway=cluster.api, settings=RELISTS) as harness:
        harness.tell(cluster.api.body(JOBS, "digits"))
        await settled()
        yield harness


def at_rest(harness: Harness) -> bool:
    state = harness.engine.state
    assert len(state.jobs) == 1
    return len(state.caches) == 0


@virtual_time
async def test_a_finished_job_is_packed_and_lists_cause_neither_a_plan_nor_a_call() -> None:
    async with operating(await ended()) as harness:
        assert at_rest(harness)
        assert len(harness.seen) == 1
        harness.seen.clear()
        harness.gateway.calls.clear()
        await asyncio.sleep(1000.0)
        assert harness.seen == []
        assert {str(call) for call in harness.gateway.calls} == {f"list {JOBS.plural}"}
        assert len(harness.gateway.calls) >= 10


@virtual_time
async def test_a_finished_job_is_counted_by_its_state_while_it_is_packed() -> None:
    async with operating(await ended()) as harness:
        metrics = Metrics()
        metrics.watch(harness.engine.state.jobs, harness.engine.queue)
        assert metrics.registry.get_sample_value("dtj_jobs", {"state": "Succeeded"}) == 1.0


@virtual_time
async def test_an_event_of_a_pod_wakes_the_job_for_one_plan() -> None:
    cluster = await ended()
    async with operating(cluster) as harness:
        before = harness.seen.pop()
        cluster.api.remove(PODS, "digits-worker-0")
        await settled()
        (after,) = harness.seen
        assert after.job == before.job
        assert after.pods == ()
        assert at_rest(harness)


@pytest.mark.parametrize("seen", [True, False], ids=["by the watch", "by a list alone"])
@virtual_time
async def test_a_packed_job_that_is_deleted_leaves_nothing(seen: bool) -> None:
    async with operating(await ended()) as harness:
        if seen:
            harness.retract()
        else:
            harness.gateway.remove(JOBS, "digits")
            await asyncio.sleep(200.0)
        assert len(harness.engine.state.jobs) == 0
        assert len(harness.engine.state.caches) == 0


@virtual_time
async def test_a_job_whose_service_cannot_be_deleted_is_not_packed_before_it_is() -> None:
    cluster = await ended()
    service = {"metadata": {"name": "digits", "labels": {Label.JOB_NAME: "digits"}}}
    owner = Job.from_object(cluster.api.body(JOBS, "digits")).owner_reference()
    cluster.api.put(SERVICES, {"metadata": {**service["metadata"], "ownerReferences": [owner]}})  # type: ignore[dict-item]
    cluster.api.fail("delete", SERVICES, Unavailable("internal error", status=500), times=3)
    async with operating(cluster) as harness:
        assert not at_rest(harness)
        await asyncio.sleep(100.0)
        assert cluster.api.names(SERVICES) == []
        assert at_rest(harness)


def test_a_packed_job_of_two_workers_takes_less_than_400_bytes() -> None:

    body: JsonObject = {**manifest("digits"), "metadata": METADATA, "status": {"state": "Succeeded"}}
    assert len(record_of(body).packed) < 400
