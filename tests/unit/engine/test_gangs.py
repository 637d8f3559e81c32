"""Which gang schedulers there are is found out in few calls."""

from __future__ import annotations

import asyncio

import pytest

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.kueue import QUEUE
from dtj.api.names import Condition, Label, Reason
from dtj.api.spec import Gang
from dtj.api.tfjob.form import TFJOB
from dtj.core.actions import LookForGangs, Plan, ReadClusterQueue, ReadFlavors
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import GangApi, GangsFound, Observed
from dtj.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from dtj.kube.gateway import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, PODS, WORKLOADS, Resource
from dtj.kube.observed import resource_of
from support.engine_harness import harnessed
from support.fake_gateway import DeniesOneNamespace, FakeGateway
from support.gang_worlds import QUEUED
from support.virtual_time import virtual_time

KUEUE = next(api for api in APIS if api.gang is Gang.KUEUE)


def looks_for_gangs(observed: Observed) -> Plan:
    return (LookForGangs(),) if observed.gangs is None else ()


async def found(gateway: FakeGateway) -> GangsFound:
    async with harnessed(looks_for_gangs, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(1.0)
        gangs = harness.seen[-1].gangs
        assert gangs is not None
        return gangs


@pytest.mark.parametrize("there", [(), (Gang.KUEUE, Gang.COSCHEDULING)], ids=["none", "two"])
@virtual_time
async def test_the_schedulers_that_are_there_are_found_in_one_call(there: tuple[Gang, ...]) -> None:
    gateway = FakeGateway()
    gateway.installed = {resource_of(api) for api in APIS if api.gang in there}
    versions = {Gang.KUEUE: "kueue.x-k8s.io/v1beta2", Gang.COSCHEDULING: "scheduling.x-k8s.io/v1alpha1"}
    assert [(api.gang, api.api_version) for api in (await found(gateway)).apis] == [(g, versions[g]) for g in there]
    assert [call.verb for call in gateway.calls].count("discover") == 1


@virtual_time
async def test_a_version_that_the_operator_does_not_know_is_found_by_its_name() -> None:
    gateway = FakeGateway()
    gateway.installed = {Resource("kueue.x-k8s.io/v1", "Workload", "workloads")}
    gangs = await found(gateway)
    assert (gangs.apis, gangs.unknown) == ((), ("kueue.x-k8s.io/v1",))


@virtual_time
async def test_what_is_known_of_a_scheduler_is_kept_while_none_of_its_apis_is_served(gateway: FakeGateway) -> None:
    """An API server that starts, or a CRD that is being replaced, answers so for a moment."""
    gateway.installed = {resource_of(KUEUE)}
    async with harnessed(looks_for_gangs, gateway=gateway) as harness:
        job = harness.submit()
        gateway.put(resource_of(KUEUE), workload_of(job, queue="before"))
        await asyncio.sleep(1.0)
        gateway.withdraw(resource_of(KUEUE))
        await asyncio.sleep(60.0)
        harness.submit(uid=job.uid, annotations={"a": "b"})
        await asyncio.sleep(1.0)
        last = harness.seen[-1]
        assert last.gang is not None
        assert last.gangs is not None
        assert last.gangs.apis == (KUEUE,)


@virtual_time
async def test_a_job_that_names_no_queue_starts_after_kueue_was_removed_and_waits_for_it_when_it_is_back(
    gateway: FakeGateway,
) -> None:
    gateway.installed = {resource_of(KUEUE)}
    async with harnessed(gateway=gateway) as harness:
        await harness.take("before")
        gateway.withdraw(resource_of(KUEUE))
        gateway.fail("get", LOCAL_QUEUES, NotFound("404 page not found", status=404), times=10**6)
        harness.submit("removed")
        await asyncio.sleep(600.0)
        assert "removed-worker-0" in gateway.names(PODS)
        gateway.heal()
        gateway.installed = {resource_of(KUEUE)}
        gateway.put(LOCAL_QUEUES, {"metadata": {"name": "default", "namespace": "default"}})
        await asyncio.sleep(60.0)
        harness.submit("back")
        await asyncio.sleep(60.0)
        assert "back-worker-0" not in gateway.names(PODS)


@virtual_time
async def test_a_job_that_waits_in_a_queue_says_that_kueue_was_removed_and_waits_in_it_again_when_it_is_back(
    gateway: FakeGateway,
) -> None:
    gateway.installed = {resource_of(KUEUE)}
    async with harnessed(gateway=gateway) as harness:
        stored = gateway.put(JOBS, manifest(runPolicy=QUEUED))
        harness.tell(stored)
        await asyncio.sleep(10.0)
        assert gateway.names(WORKLOADS) == ["digits"]
        gateway.remove(WORKLOADS, "digits", silently=True)
        gateway.withdraw(WORKLOADS)
        await asyncio.sleep(600.0)
        invalid = harness.seen[-1].job.status.when_true(Condition.INVALID)
        assert invalid is not None
        assert invalid.reason == Reason.GANG_UNAVAILABLE
        assert "serves no API of Kueue" in invalid.message
        gateway.serve(WORKLOADS)
        await asyncio.sleep(120.0)
        assert gateway.names(WORKLOADS) == ["digits"]
        assert harness.seen[-1].job.status.reason == Reason.QUEUED


BROKEN = Unavailable("conversion webhook failed: connection refused", status=500)
VOLCANO = next(api for api in APIS if api.gang is Gang.VOLCANO)


@pytest.mark.parametrize("error", [BROKEN, NotFound("no such resource", status=404)], ids=type)
@virtual_time
async def test_a_scheduler_whose_objects_cannot_be_listed_keeps_no_pods_from_other_jobs(error: ApiError) -> None:
    gateway = FakeGateway()
    gateway.installed = {resource_of(VOLCANO), resource_of(KUEUE)}
    gateway.fail("list", resource_of(VOLCANO), error, times=10**6)
    async with harnessed(gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(10.0)
        assert gateway.names(PODS)
        found = harness.engine.state.gangs_found
        assert found is not None
        assert (found.apis, found.failing) == ((KUEUE,), {Gang.VOLCANO: error.message})


@virtual_time
async def test_a_scheduler_whose_objects_are_listed_too_slowly_keeps_no_pods_from_other_jobs() -> None:
    gateway = FakeGateway()
    gateway.installed = {resource_of(VOLCANO)}
    gateway.answer_late("list", resource_of(VOLCANO), 3600.0)
    async with harnessed(gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        assert gateway.names(PODS)


@pytest.mark.parametrize(
    ("api", "scheduling"), [(KUEUE, QUEUED), (VOLCANO, {"scheduling": {"gang": "Auto"}})], ids=["queue", "gang"]
)
@virtual_time
async def test_a_namespace_whose_gangs_are_not_listed_takes_the_scheduler_from_no_other(
    api: GangApi, scheduling: JsonObject
) -> None:
    """Nor does a job of that namespace start past the scheduler: it waits until the operator has its right again."""
    gangs = resource_of(api)
    gateway = DeniesOneNamespace(gangs)
    gateway.installed = {gangs}

    async def have(resource: Resource) -> set[object]:
        await asyncio.sleep(180.0)
        return {dig(line.body, "metadata", "namespace") for line in gateway.history(resource)}

    async with harnessed(gateway=gateway, namespaces=("first", "second")) as harness:
        for namespace in ("first", "second"):
            metadata: JsonObject = {"name": "digits", "namespace": namespace, "generation": 1}
            harness.tell(gateway.put(JOBS, {**manifest(runPolicy=scheduling), "metadata": metadata}))
        assert await have(gangs) == {"second"}
        assert "first" not in await have(PODS)
        waits = harness.status(("first", "digits")).when_true(Condition.INVALID)
        assert waits is not None
        assert "no right in this namespace" in waits.message
        gateway.denied = None
        assert await have(gangs) == {"first", "second"}
        assert harness.status(("first", "digits")).when_true(Condition.INVALID) is None


@virtual_time
async def test_a_scheduler_whose_gangs_no_namespace_lists_counts_as_not_allowed() -> None:
    gateway = DeniesOneNamespace(resource_of(VOLCANO))
    gateway.installed = {resource_of(VOLCANO)}
    async with harnessed(looks_for_gangs, gateway=gateway, namespaces=("first",)) as harness:
        harness.submit(namespace="first")
        await asyncio.sleep(1.0)
        gangs = harness.seen[-1].gangs
        assert gangs is not None
        assert (gangs.apis, gangs.denied, gangs.failing) == ((), (VOLCANO,), {})


@pytest.mark.parametrize("error", [BROKEN, NotFound("404 page not found", status=404)], ids=type)
@virtual_time
async def test_a_job_says_in_its_status_that_the_question_for_its_queue_keeps_failing(
    gateway: FakeGateway, error: ApiError
) -> None:
    gateway.installed = {resource_of(KUEUE)}
    gateway.fail("get", LOCAL_QUEUES, error, times=10**6)
    async with harnessed(gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        status = harness.engine.state.jobs.get(("default", "digits")).job().status  # type: ignore[union-attr]
        assert (status.state, status.reason) == ("Pending", Reason.API_CALL_FAILED)
        ready = status.condition(Condition.PODS_READY)
        assert ready is not None
        assert ready.message == error.message
        gateway.heal()
        await asyncio.sleep(120.0)
        assert gateway.names(PODS)


@virtual_time
async def test_flavors_are_read_and_one_that_cannot_be_is_a_refusal_until_it_can(gateway: FakeGateway) -> None:
    def reads(observed: Observed) -> Plan:
        unread = tuple(name for name in ("spot", "gpu") if name not in observed.flavors)
        return (ReadFlavors(unread),) if unread else ()

    spec: JsonObject = {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot"}]}
    gateway.put(FLAVORS, {"metadata": {"name": "spot", "namespace": ""}, "spec": spec})
    async with harnessed(reads, gateway=gateway) as harness:
        await harness.take()
        (spot,), refusal = harness.seen[-1].flavors.values(), harness.seen[-1].refusal
        assert (spot.node_labels, spot.tolerations) == ({"pool": "spot"}, ({"key": "spot"},))
        assert refusal is not None
        assert (refusal.name, refusal.reason) == ("resourceflavor gpu", "NotFound")
        gateway.put(FLAVORS, {"metadata": {"name": "gpu", "namespace": ""}})
        await asyncio.sleep(10.0)
        assert set(harness.seen[-1].flavors) == {"spot", "gpu"}
        assert harness.seen[-1].refusal is None


@pytest.mark.parametrize("answer", ["inactive", "active", "none", "forbidden", "broken"])
@virtual_time
async def test_a_cluster_queue_says_why_it_admits_no_job(gateway: FakeGateway, answer: str) -> None:
    active: JsonObject = {"type": "Active", "status": "False", "message": "no flavor"}
    if answer == "active":
        active["status"] = "True"
    if answer != "none":
        gateway.put(CLUSTER_QUEUES, {"metadata": {"name": "all", "namespace": ""}, "status": {"conditions": [active]}})
    if answer == "forbidden":
        gateway.fail("get", CLUSTER_QUEUES, Forbidden("no right", status=403, reason="Forbidden"))

    if answer == "broken":
        gateway.fail("get", CLUSTER_QUEUES, BROKEN)

    def asks(observed: Observed) -> Plan:
        return () if observed.cluster_queues else (ReadClusterQueue("all"),)

    async with harnessed(asks, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(1.0)
        assert harness.seen[-1].cluster_queues["all"].words == ("no flavor" if answer == "inactive" else "")


@virtual_time
async def test_a_cluster_queue_for_which_no_job_waits_any_more_is_forgotten() -> None:
    def asks(observed: Observed) -> Plan:
        name = observed.job.labels[QUEUE]
        return () if name in observed.cluster_queues else (ReadClusterQueue(name),)

    async with harnessed(asks) as harness:
        known = harness.engine.state
        for name in ("first", "second"):
            harness.submit(labels={QUEUE: name})
            await asyncio.sleep(60.0)
        assert set(known.cluster_queues) == {"first", "second"}
        await asyncio.sleep(30.0)
        harness.submit(labels={QUEUE: "third"})
        await asyncio.sleep(1.0)
        assert set(known.cluster_queues) == {"second", "third"}


@virtual_time
async def test_a_tfjob_is_planned_again_when_its_workload_changes(gateway: FakeGateway) -> None:
    gateway.installed = {resource_of(KUEUE)}
    async with harnessed(looks_for_gangs, gateway=gateway, form=TFJOB) as harness:
        job = harness.submit()
        for queue in ("before", "after"):
            body = workload_of(job, queue=queue)
            object_at(body, "metadata")["labels"] = job.form.labels(job.name, job.uid)
            gateway.put(resource_of(KUEUE), body)
            await asyncio.sleep(1.0)
            gang = harness.seen[-1].gang
            assert gang is not None
            assert gang.queue == queue


def workload_of(job: Job, *, queue: str) -> JsonObject:
    metadata: JsonObject = {
        "name": job.name,
        "namespace": job.namespace,
        "labels": {Label.JOB_NAME: job.name},
        "ownerReferences": [job.owner_reference()],
    }
    return {"metadata": metadata, "spec": {"queueName": queue}}
