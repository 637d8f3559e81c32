"""What the API server keeps refusing reaches the planner, for the status, until it works."""

from __future__ import annotations

import asyncio

import pytest

from builders import at
from dtj.api.form import DTJ
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Reason
from dtj.api.status import JobStatus
from dtj.core.actions import BestEffort, CreatePod, Delete, DeletePod, Kind, Plan, TellPod
from dtj.core.observed import Observed
from dtj.core.platform import JobAccess, Platform
from dtj.engine.executor import MAX_REFUSALS
from dtj.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from dtj.kube.gateway import EVENTS, JOBS, NETWORK_POLICIES, PODS, SERVICES, WORKLOADS, Resource
from support.engine_harness import Harness, harnessed, once, pod_manifest, wants_pods
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import virtual_time

FORBIDDEN = Forbidden('cannot delete resource "pods"', status=403, reason="Forbidden")
BROKEN = Unavailable("failed calling webhook", status=500, reason="InternalError")


def deletes_all(observed: Observed) -> Plan:
    return tuple(DeletePod(pod.name, pod.uid) for pod in observed.pods)


@virtual_time
async def test_a_deletion_that_is_forbidden_is_reported_until_it_works(gateway: FakeGateway) -> None:
    gateway.fail("delete", PODS, FORBIDDEN, times=3)
    async with harnessed(once(), gateway=gateway) as harness:
        gateway.put(PODS, pod_manifest(harness.submit()))
        harness.planner = deletes_all
        await asyncio.sleep(10.0)
        assert gateway.names(PODS) == []
        obstacles = [observed.obstacle for observed in harness.seen]
        assert FORBIDDEN.message in obstacles
        assert obstacles[-1] == "", "planned again when it has worked, so that the status can say so"


@pytest.mark.parametrize(
    ("error", "said"),
    [(BROKEN, BROKEN.message), (NO_ANSWER, ""), (Conflict("modified", status=409), "")],
    ids=["500", "no answer", "409"],
)
@virtual_time
async def test_an_error_that_says_something_about_the_job_is_reported_when_it_lasts(error: ApiError, said: str) -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, error, times=6)
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        obstacles = [observed.obstacle for observed in harness.seen]
        assert obstacles[:4] == ["", "", "", said]
        assert set(obstacles) == {"", said}
        assert obstacles[-1] == ""


@virtual_time
async def test_a_conflict_that_stays_is_reported_until_it_is_gone(gateway: FakeGateway) -> None:
    gateway.fail("create", PODS, Conflict("another version", status=409), times=15)
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(1000.0)
        obstacles = [observed.obstacle for observed in harness.seen]
        assert obstacles[:10] == [""] * 10
        assert "another version" in obstacles
        assert obstacles[-1] == ""


PROTECTED = Forbidden('admission webhook "guard" denied the request: protected', status=403, reason="Forbidden")


def with_pods(harness: Harness, number: int) -> None:
    """Have the job and its pods there."""
    job = harness.submit()
    for index in range(number):
        harness.gateway.put(PODS, pod_manifest(job, index))


def notes(harness: Harness) -> list[str]:
    """What events say of calls that fail."""
    bodies = (harness.gateway.body(EVENTS, name) for name in harness.gateway.names(EVENTS))
    return [str(dig(body, "note")) for body in bodies if body["reason"] == Reason.API_CALL_FAILED]


@pytest.mark.parametrize("error", [PROTECTED, BROKEN, NO_ANSWER, Conflict("modified", status=409)], ids=type)
@virtual_time
async def test_a_pod_that_cannot_be_deleted_keeps_no_other(error: ApiError) -> None:
    gateway = FakeGateway()
    gateway.fail("delete", PODS, error, name="digits-worker-0", times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        with_pods(harness, 4)
        harness.planner = deletes_all
        await asyncio.sleep(10.0)
        assert gateway.names(PODS) == ["digits-worker-0"]


@virtual_time
async def test_the_event_of_a_refusal_names_the_objects_and_comes_once(gateway: FakeGateway) -> None:
    for index in (0, 2):
        gateway.fail("delete", PODS, PROTECTED, name=f"digits-worker-{index}", times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        with_pods(harness, 4)
        harness.planner = deletes_all
        await asyncio.sleep(600.0)
        assert notes(harness) == [f"Pod digits-worker-0, digits-worker-2: {PROTECTED.message}"]
        assert harness.seen[-1].obstacle == PROTECTED.message


@virtual_time
async def test_pods_that_cannot_be_deleted_keep_no_other_however_many_come_before(gateway: FakeGateway) -> None:
    protected = 2 * MAX_REFUSALS + 1
    for index in range(protected):
        gateway.fail("delete", PODS, PROTECTED, name=f"digits-worker-{index}", times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        with_pods(harness, protected + 5)
        harness.planner = deletes_all
        await asyncio.sleep(60.0)
        assert len(gateway.names(PODS)) == protected


@virtual_time
async def test_where_all_is_refused_few_calls_are_made_in_a_pass(gateway: FakeGateway) -> None:
    gateway.fail("delete", PODS, FORBIDDEN, times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        with_pods(harness, 1000)
        harness.planner = deletes_all
        await asyncio.sleep(600.0)
        passes = sum(1 for observed in harness.seen if observed.pods)
        assert len(harness.writes()) <= MAX_REFUSALS * passes + len(notes(harness))
        assert passes < 40


@virtual_time
async def test_a_pod_that_cannot_be_told_who_trains_with_it_keeps_no_other_from_it(gateway: FakeGateway) -> None:
    def tells_all(observed: Observed) -> Plan:
        return tuple(TellPod(pod.name, pod.uid, "new", again=True) for pod in observed.pods if pod.world != "new")

    gateway.fail("patch", PODS, PROTECTED, name="digits-worker-0", times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        with_pods(harness, 3)
        harness.planner = tells_all
        await asyncio.sleep(10.0)
        assert [pod.world for pod in sorted(harness.seen[-1].pods, key=lambda pod: pod.index)] == ["", "new", "new"]


@virtual_time
async def test_a_service_that_cannot_be_deleted_keeps_no_other(gateway: FakeGateway) -> None:
    def deletes_services(observed: Observed) -> Plan:
        return tuple(Delete(Kind.SERVICE, name) for name in gateway.names(SERVICES))

    gateway.fail("delete", SERVICES, PROTECTED, name="digits-worker-0", times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        job = harness.submit()
        for index in range(3):
            metadata: JsonObject = {"name": f"digits-worker-{index}", "ownerReferences": [job.owner_reference()]}
            gateway.put(SERVICES, {"metadata": metadata})
        harness.planner = deletes_services
        await asyncio.sleep(10.0)
        assert gateway.names(SERVICES) == ["digits-worker-0"]
        assert notes(harness) == [f"Service digits-worker-0: {PROTECTED.message}"]


def ended_in_a_queue(harness: Harness, *kinds: Resource) -> None:
    """Have a job that has ended, its Workload, and objects of these kinds that it owns."""
    gateway, job = harness.gateway, harness.submit()
    metadata: JsonObject = {
        "name": "digits",
        "labels": DTJ.labels("digits", job.uid),
        "ownerReferences": [job.owner_reference()],
    }
    for kind in (*kinds, WORKLOADS):
        gateway.put(kind, {"metadata": metadata})
    complete: JsonObject = {"type": "Complete", "status": "True", "lastTransitionTime": at()}
    ended: JsonObject = {"gang": "Kueue", "queue": "default", "attempt": 1, "conditions": [complete]}
    harness.tell(gateway.put(JOBS, {**gateway.body(JOBS, "digits"), "status": ended}))


@pytest.mark.parametrize("kind", [NETWORK_POLICIES, SERVICES], ids=lambda kind: kind.plural)
@virtual_time
async def test_a_job_that_has_ended_gives_its_quota_back_whatever_of_it_cannot_be_deleted(kind: Resource) -> None:
    gateway = FakeGateway()
    gateway.installed = {WORKLOADS}
    gateway.fail("delete", kind, PROTECTED, times=10**6)
    async with harnessed(gateway=gateway, platform=Platform(job_access=JobAccess())) as harness:
        ended_in_a_queue(harness, kind)
        await asyncio.sleep(10.0)
        assert gateway.names(kind) == ["digits"]
        (finished,) = objects(dig(gateway.body(WORKLOADS, "digits"), "status", "conditions"))
        assert (finished["type"], finished["status"]) == ("Finished", "True")
        assert notes(harness) == [f"{kind.kind} digits: {PROTECTED.message}"]


@virtual_time
async def test_a_job_that_has_ended_gives_its_quota_back_after_a_conflict_of_which_no_news_comes() -> None:
    gateway = FakeGateway()
    gateway.installed = {WORKLOADS}
    gateway.fail("patch", WORKLOADS, Conflict("the object has been modified", status=409), times=5)
    async with harnessed(gateway=gateway) as harness:
        ended_in_a_queue(harness)
        await asyncio.sleep(300.0)
        (finished,) = objects(dig(gateway.body(WORKLOADS, "digits"), "status", "conditions"))
        assert (finished["type"], finished["status"]) == ("Finished", "True")


@pytest.mark.parametrize("error", [PROTECTED, BROKEN], ids=type)
@virtual_time
async def test_a_pod_that_cannot_be_created_keeps_no_other_for_long(error: ApiError) -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, error, name="digits-worker-0", times=10**6)
    async with harnessed(wants_pods(4), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(10.0)
        assert gateway.names(PODS) == ["digits-worker-1", "digits-worker-2", "digits-worker-3"]


@virtual_time
async def test_of_what_the_job_can_do_without_one_refusal_holds_nothing_else(gateway: FakeGateway) -> None:
    def aside(observed: Observed) -> Plan:
        present = {pod.index for pod in observed.pods}
        return tuple(BestEffort(CreatePod.of(pod_manifest(observed.job, i))) for i in range(3) if i not in present)

    gateway.fail("create", PODS, PROTECTED, name="digits-worker-0", times=10**6)
    async with harnessed(aside, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(10.0)
        assert gateway.names(PODS) == ["digits-worker-1", "digits-worker-2"]


@pytest.mark.parametrize(("phase", "goes_on"), [("Succeeded", True), ("Running", False)])
@virtual_time
async def test_the_rest_of_a_plan_waits_only_for_the_deletion_of_pods_that_run(phase: str, *, goes_on: bool) -> None:
    def replaces(observed: Observed) -> Plan:
        old = tuple(DeletePod(pod.name, pod.uid) for pod in observed.pods if pod.index == 0)
        new = any(pod.index == 1 for pod in observed.pods)
        return (*old, *(() if new else (CreatePod.of(pod_manifest(observed.job, 1)),)))

    gateway = FakeGateway()
    gateway.fail("delete", PODS, PROTECTED, times=10**6)
    async with harnessed(once(), gateway=gateway) as harness:
        gateway.put(PODS, {**pod_manifest(harness.submit(), 0), "status": {"phase": phase}})
        harness.planner = replaces
        await asyncio.sleep(60.0)
        assert ("digits-worker-1" in gateway.names(PODS)) == goes_on
        assert notes(harness) == [f"Pod digits-worker-0: {PROTECTED.message}"]


@virtual_time
async def test_a_job_whose_pods_are_there_says_what_is_refused_and_still_counts_those_that_are_ready(
    gateway: FakeGateway,
) -> None:
    def status() -> JobStatus:
        return Job.from_object(gateway.body(JOBS, "digits")).status

    gateway.fail("patch", SERVICES, PROTECTED, times=10**6)
    async with harnessed(gateway=gateway) as harness:
        await harness.take()
        gateway.put(SERVICES, {**gateway.body(SERVICES, "digits"), "spec": {"selector": {"not": "ours"}}})
        await asyncio.sleep(60.0)
        assert (status().reason, status().ready) == (Reason.API_CALL_FAILED, "0/2")
        ready: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name in gateway.names(PODS):
            gateway.put(PODS, {**gateway.body(PODS, name), "status": ready})
        await asyncio.sleep(120.0)
        assert (status().state, status().ready) == ("Running", "2/2")
