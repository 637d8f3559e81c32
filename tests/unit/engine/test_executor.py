"""Carrying out plans: their order, what a failure stops, and what the API server's answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dtj.api.json import JsonObject, dig
from dtj.api.names import Annotation, Label, Reason
from dtj.api.status import ConditionStatus, JobStatus, ReplicaStatus
from dtj.api.tfjob.form import TFJOB
from dtj.core.actions import (
    CheckPods,
    Create,
    CreatePod,
    DeletePod,
    Emit,
    Kind,
    PatchStatus,
    Plan,
    RequeueAfter,
    TellPod,
)
from dtj.core.observed import Observed
from dtj.core.platform import PLATFORM_OF_TFJOBS
from dtj.kube.errors import ApiError, Forbidden, Invalid, TooManyRequests
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES, TFJOBS, Resource
from support.engine_harness import Harness, harnessed, once, pod_manifest, service_manifest, wants_pods
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.played_tfjobs import tfjob
from support.virtual_time import loop_time, settled, virtual_time

STARTING = JobStatus(state="Starting", attempt=1, ready="0/2")
CREATED = Emit("Normal", Reason.PODS_CREATED, "created 2 pods")
QUOTA = Forbidden('pods "digits-worker-0" is forbidden: exceeded quota', status=403, reason="Forbidden")


def status_of(harness: Harness) -> object:
    return dig(harness.gateway.body(JOBS, "digits"), "status")


# -- order ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_plan_is_carried_out_in_its_order_and_events_come_last() -> None:
    def planner(observed: Observed) -> Plan:
        job = observed.job
        if observed.pods:
            return ()
        return (
            Emit("Normal", Reason.PODS_CREATED, "said first, recorded last"),
            PatchStatus(STARTING),
            Create(Kind.SERVICE, service_manifest(job)),
            CreatePod.of(pod_manifest(job, 0)),
            CreatePod.of(pod_manifest(job, 1)),
        )

    async with harnessed(planner) as harness:
        await harness.take()
        writes = harness.writes()
        assert writes[:4] == [
            "patch distributedtrainingjobs digits",
            "create services digits",
            "create pods digits-worker-0",
            "create pods digits-worker-1",
        ]
        assert writes[4].startswith("create events digits.")
        assert len(writes) == 5


@virtual_time
async def test_a_job_is_planned_again_when_its_plan_asks_for_it() -> None:
    async with harnessed(once((RequeueAfter(30.0), RequeueAfter(10.0)))) as harness:
        harness.submit()
        await asyncio.sleep(9.9)
        assert len(harness.seen) == 1
        await asyncio.sleep(0.2)
        assert len(harness.seen) == 2
        assert harness.gateway.calls == []


# -- status ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_only_what_differs_is_written_and_what_is_not_ours_stays() -> None:
    before: JsonObject = {"state": "Starting", "ready": "0/2", "startTime": "2026-01-01T00:00:00Z", "foreign": {"x": 1}}
    after = JobStatus(state="Running", ready="0/2", replica_statuses={"worker": ReplicaStatus(desired=2)})
    async with harnessed(once((PatchStatus(after),))) as harness:
        job = harness.submit()
        harness.tell(harness.gateway.put(JOBS, {**harness.gateway.body(JOBS, "digits"), "status": before}))
        await settled()
        (call,) = harness.gateway.calls
        assert call.body == {
            "metadata": {"resourceVersion": str(int(job.resource_version) + 1)},
            "status": {"state": "Running", "startTime": None, "replicaStatuses": {"worker": {"desired": 2}}},
        }
        assert status_of(harness) == {
            "state": "Running",
            "ready": "0/2",
            "replicaStatuses": {"worker": {"desired": 2}},
            "foreign": {"x": 1},
        }


@virtual_time
async def test_a_status_that_is_stored_already_is_not_written_and_a_change_of_state_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    condition = ConditionStatus(type="PodsReady", status="True", reason="AllPodsReady")
    status = JobStatus(state="Running", conditions=(condition,))
    later = status.model_copy(update={"ready": "2/2"})
    async with harnessed(once((PatchStatus(status),), (PatchStatus(status),), (PatchStatus(later),))) as harness:
        await harness.take()
        await harness.look_again()
        assert len(harness.seen) == 2
        assert harness.writes() == ["patch distributedtrainingjobs digits"]
        await harness.look_again()
        assert harness.writes() == ["patch distributedtrainingjobs digits"] * 2
    assert caplog.messages == ["is Running, was new"]


@virtual_time
async def test_the_next_plan_sees_the_written_status_without_waiting_for_the_watch() -> None:
    async with harnessed(once((PatchStatus(STARTING), RequeueAfter(1.0)))) as harness:
        harness.submit()
        await asyncio.sleep(2.0)
        assert harness.seen[1].job.status == STARTING
        assert harness.seen[0].status_written_at is None
        assert harness.seen[1].status_written_at is not None


@virtual_time
async def test_a_conflict_stops_the_plan_before_pods_are_touched_and_says_nothing() -> None:
    def planner(observed: Observed) -> Plan:
        return (PatchStatus(STARTING), CreatePod.of(pod_manifest(observed.job)), CREATED)

    async with harnessed(planner) as harness:
        harness.submit()
        harness.gateway.put(JOBS, harness.gateway.body(JOBS, "digits"))  # changed, and the engine got no event
        await settled()
        assert harness.writes() == ["patch distributedtrainingjobs digits"]
        assert harness.gateway.names(EVENTS) == []
        harness.tell(harness.gateway.body(JOBS, "digits"))
        await asyncio.sleep(1.0)
        assert harness.gateway.names(PODS) == ["digits-worker-0"]
        assert len(harness.gateway.names(EVENTS)) == 1


# -- creating -------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_refusal_stops_the_batch_and_the_planner_hears_of_it(gateway: FakeGateway) -> None:
    gateway.fail("create", PODS, QUOTA, times=10**6)
    async with harnessed(wants_pods(100), gateway=gateway) as harness:
        await harness.take()
        assert harness.writes() == ["create services digits", "create pods digits-worker-0"]
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert (refusal.name, refusal.reason, refusal.message) == ("digits-worker-0", "Forbidden", QUOTA.message)


@virtual_time
async def test_after_a_refusal_the_status_is_written_but_nothing_is_created_for_a_while(gateway: FakeGateway) -> None:
    def planner(observed: Observed) -> Plan:
        status_writes = (
            (PatchStatus(STARTING.model_copy(update={"reason": "PodCreationFailed"})),) if observed.refusal else ()
        )
        return (CreatePod.of(pod_manifest(observed.job)), *status_writes)

    gateway.fail("create", PODS, QUOTA, times=10**6)
    async with harnessed(planner, gateway=gateway) as harness:
        await harness.take()
        assert harness.writes() == ["create pods digits-worker-0", "patch distributedtrainingjobs digits"]
        for _ in range(100):
            await harness.look_again()
        assert len(harness.writes()) == 2, "changes elsewhere must not turn a refusal into a hot loop"


@virtual_time
async def test_a_refusal_is_over_also_while_an_ended_pod_cannot_be_deleted(gateway: FakeGateway) -> None:
    owned: JsonObject = {"uid": "uid-1", "controller": True}
    owner: JsonObject = {"ownerReferences": [owned], "labels": {Label.JOB_NAME: "digits"}}
    gateway.put(PODS, {"metadata": {"name": "digits-worker-1", "uid": "u1", **owner}, "status": {"phase": "Failed"}})
    gateway.fail("delete", PODS, QUOTA, times=10**6)
    gateway.fail("create", PODS, QUOTA, times=1)

    def planner(observed: Observed) -> Plan:
        return (DeletePod("digits-worker-1", "u1"), CreatePod.of(pod_manifest(observed.job)))

    async with harnessed(planner, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(60.0)
        assert any(seen.refusal is not None for seen in harness.seen)
        assert "digits-worker-0" in gateway.names(PODS)
        assert harness.seen[-1].refusal is None


@virtual_time
async def test_the_rest_of_a_batch_goes_on_where_one_name_is_taken(gateway: FakeGateway) -> None:
    gateway.put(PODS, {"metadata": {"name": "digits-worker-1"}})
    async with harnessed(wants_pods(3), gateway=gateway) as harness:
        await harness.take()
        assert harness.gateway.names(PODS) == ["digits-worker-0", "digits-worker-1", "digits-worker-2"]


@virtual_time
async def test_a_foreign_pod_without_labels_is_shown_to_the_planner_and_never_touched(gateway: FakeGateway) -> None:
    foreign = gateway.put(PODS, {"metadata": {"name": "digits-worker-0", "uid": "foreign"}})
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        job = await harness.take()
        (pod_of_others,) = harness.seen[-1].pods
        assert (pod_of_others.name, pod_of_others.uid, pod_of_others.owner_uid) == ("digits-worker-0", "foreign", "")
        assert (pod_of_others.role, pod_of_others.index) == ("worker", 0)
        assert pod_of_others.owner_uid != job.uid
        assert harness.gateway.body(PODS, "digits-worker-0") == foreign


@virtual_time
@pytest.mark.parametrize("resource", [PODS, SERVICES], ids=str)
async def test_a_name_that_a_pytorchjob_of_the_same_name_has_is_taken(resource: Resource, gateway: FakeGateway) -> None:
    """Its pods have the job's name in the same label, and another operator's name beside it."""
    labels: JsonObject = {
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    owner: JsonObject = {"kind": "PyTorchJob", "name": "mnist", "uid": "theirs", "controller": True}
    gateway.put(resource, {"metadata": {"name": "mnist-worker-0", "labels": labels, "ownerReferences": [owner]}})
    async with harnessed(gateway=gateway, form=TFJOB, platform=PLATFORM_OF_TFJOBS) as harness:
        body = {**tfjob({"Worker": 1}), "apiVersion": TFJOB.api_version, "kind": TFJOB.kind}
        harness.tell(gateway.put(TFJOBS, {**body, "metadata": {"name": "mnist", "uid": "ours"}}))
        await asyncio.sleep(60.0)
        taken = f'{resource.kind.lower()} "mnist-worker-0" already exists and is not owned by this job'
        assert taken in str(gateway.body(TFJOBS, "mnist")["status"])
        gateway.remove(resource, "mnist-worker-0")
        await asyncio.sleep(60.0)
        assert gateway.names(PODS) == ["mnist-worker-0"]


@virtual_time
async def test_a_foreign_service_and_a_foreign_claim_are_shown_to_the_planner(gateway: FakeGateway) -> None:
    def planner(observed: Observed) -> Plan:
        if observed.service is None:
            return (Create(Kind.SERVICE, service_manifest(observed.job)),)
        claim: JsonObject = {"metadata": {"name": "digits-checkpoint"}}
        return (Create(Kind.CLAIM, claim),) if observed.claim is None else ()

    gateway.put(SERVICES, {"metadata": {"name": "digits"}, "spec": {"selector": {"app": "other"}}})
    gateway.put(CLAIMS, {"metadata": {"name": "digits-checkpoint"}})
    async with harnessed(planner, gateway=gateway) as harness:
        await harness.take()
        service, claim = harness.seen[-1].service, harness.seen[-1].claim
        assert service is not None
        assert (service.owner_uid, service.selector) == ("", {"app": "other"})
        assert claim is not None
        assert (claim.name, claim.owner_uid) == ("digits-checkpoint", "")


@virtual_time
async def test_when_a_foreign_pod_is_gone_ours_is_created(gateway: FakeGateway) -> None:
    gateway.put(PODS, {"metadata": {"name": "digits-worker-0"}})

    def planner(observed: Observed) -> Plan:
        return wants_pods(1)(observed) or (RequeueAfter(30.0),)

    async with harnessed(planner, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(100.0)
        reads = [str(call) for call in harness.gateway.calls if call.verb == "get"]
        assert 2 <= len(reads) <= 5
        gateway.remove(PODS, "digits-worker-0")
        await asyncio.sleep(60.0)
        assert harness.seen[-1].pods[0].owner_uid == harness.seen[-1].job.uid


@virtual_time
async def test_our_own_pod_that_lost_its_labels_is_still_known_as_ours() -> None:
    async with harnessed(wants_pods(1)) as harness:
        job = await harness.take()
        body = harness.gateway.body(PODS, "digits-worker-0")
        unlabelled: JsonObject = {"metadata": {"name": "digits-worker-0", "ownerReferences": [job.owner_reference()]}}
        harness.gateway.remove(PODS, "digits-worker-0")
        harness.gateway.put(PODS, {**body, **unlabelled})
        await settled()
        (pod,) = harness.seen[-1].pods
        assert (pod.owner_uid, pod.role, pod.index) == (job.uid, "worker", 0)


# -- the dry run ----------------------------------------------------------------------------------------------


def checks_once(observed: Observed) -> Plan:
    """Wants a verdict for the job's generation, and nothing after that."""
    if observed.verdict is not None and observed.verdict.generation == observed.job.generation:
        return ()
    roles = ("chief", "worker")
    return (CheckPods(observed.job.generation, tuple(pod_manifest(observed.job, role=role) for role in roles)),)


@virtual_time
async def test_the_servers_own_words_are_the_verdict_by_role_and_each_once(gateway: FakeGateway) -> None:
    words = Invalid("Pod is invalid", status=422, causes=("spec.containers[0].image: Required value",))
    gateway.fail("create", PODS, words, name="digits-worker-0")
    gateway.fail("create", PODS, Invalid('unknown field "spec.imagee"', status=400), name="digits-chief-0")
    async with harnessed(checks_once, gateway=gateway) as harness:
        await harness.take()
        assert harness.verdict.errors == (
            'chief: unknown field "spec.imagee"',
            "worker: spec.containers[0].image: Required value",
        )


@virtual_time
async def test_each_generation_is_checked_once() -> None:
    async with harnessed(checks_once) as harness:
        harness.submit()
        for _ in range(3):
            await harness.look_again()
        assert len(harness.gateway.calls) == 2
        await harness.take(generation=2)
        assert len(harness.gateway.calls) == 4


PRIVILEGES = 'allowPrivilegeEscalation != false (container "trainer" must set ...)'
NOT_RESTRICTED = Forbidden(
    f'pods "digits-worker-0" is forbidden: violates PodSecurity "restricted:latest": {PRIVILEGES}',
    status=403,
    reason="Forbidden",
)


NO_CLASS = Forbidden('pods "x" is forbidden: no PriorityClass with name urgent was found', status=403)


@pytest.mark.parametrize(
    ("error", "errors"),
    [
        (QUOTA, ()),
        (NO_ANSWER, ()),
        (TooManyRequests("slow down", status=429), ()),
        (NO_CLASS, (f"chief: {NO_CLASS.message}: create it, or name another one",)),
    ],
    ids=["quota", "outage", "429", "a priority class that does not exist"],
)
@virtual_time
async def test_a_check_reports_what_is_the_fault_of_the_template_alone(
    gateway: FakeGateway, error: ApiError, errors: tuple[str, ...]
) -> None:
    gateway.fail("create", PODS, error)
    async with harnessed(checks_once, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(5.0)
        assert harness.verdict.errors == errors


@pytest.mark.parametrize("restricted", [False, True])
@virtual_time
async def test_a_namespace_that_enforces_the_restricted_standard_shows_in_the_verdict(restricted: bool) -> None:
    gateway = FakeGateway()
    gateway.fail("create", PODS, NOT_RESTRICTED, name="digits-worker-0")

    def planner(observed: Observed) -> Plan:
        return tuple(replace(a, restricted=restricted) for a in checks_once(observed) if isinstance(a, CheckPods))

    async with harnessed(planner, gateway=gateway) as harness:
        await harness.take()
        verdict = harness.seen[-1].verdict
        assert verdict is not None
        assert (verdict.wants_restricted, verdict.restricted) == (True, restricted)
        assert verdict.errors == (f"worker: {NOT_RESTRICTED.message}",)


@virtual_time
async def test_a_namespace_that_began_to_enforce_it_after_the_check_is_found_out(gateway: FakeGateway) -> None:

    def planner(observed: Observed) -> Plan:
        return checks_once(observed) or wants_pods(1)(observed)

    gateway.fail("create", SERVICES, NO_ANSWER)  # the check is over when this fails
    async with harnessed(planner, gateway=gateway) as harness:
        await harness.take()
        checks = sum(call.dry_run for call in gateway.calls)
        gateway.fail("create", PODS, NOT_RESTRICTED)
        await asyncio.sleep(5.0)
        assert checks == 2
        assert sum(call.dry_run for call in gateway.calls) == 4, "each role, and again after the refusal"
        assert gateway.names(PODS) == ["digits-worker-0"]


# -- deleting -------------------------------------------------------------------------------------------------


@virtual_time
async def test_deleting_a_pod_that_is_gone_or_another_by_now_is_no_error() -> None:
    gateway, deletes = FakeGateway(), (DeletePod("digits-worker-0", "old"),)
    async with harnessed(once(deletes, deletes), gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(100.0)
        gateway.put(PODS, {"metadata": {"name": "digits-worker-0", "uid": "new"}})
        harness.engine.queue.add(("default", "digits"))
        await asyncio.sleep(100.0)
        assert harness.writes() == ["delete pods digits-worker-0"] * 2
        assert gateway.names(PODS) == ["digits-worker-0"]


@pytest.mark.parametrize(("number", "words"), [(1, "deleted Pod digits-worker-0"), (2, "deleted 2 pods")])
@virtual_time
async def test_deleted_pods_are_logged_in_one_line(number: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    gateway = FakeGateway()
    for index in range(number):
        gateway.put(PODS, {"metadata": {"name": f"digits-worker-{index}", "uid": f"u{index}"}})
    plan = tuple(DeletePod(f"digits-worker-{index}", f"u{index}") for index in range(number))
    with caplog.at_level("INFO"):
        async with harnessed(once(plan), gateway=gateway) as harness:
            await harness.take()
    assert [message for message in caplog.messages if message.startswith("deleted")] == [words]


@virtual_time
async def test_a_pod_is_told_once_who_trains_with_it_and_one_that_is_gone_is_no_error(gateway: FakeGateway) -> None:
    owned: JsonObject = {"uid": "uid-1", "controller": True}
    owner: JsonObject = {"ownerReferences": [owned], "labels": {Label.JOB_NAME: "digits"}}
    tell = (TellPod("digits-worker-0", "u0", "new"), TellPod("digits-worker-1", "u1", "new"))
    async with harnessed(once(tell), gateway=gateway) as harness:
        gateway.put(PODS, {"metadata": {"name": "digits-worker-0", "uid": "u0", **owner}})
        await harness.take()
        await asyncio.sleep(60.0)
        assert sorted(harness.writes()) == ["patch pods digits-worker-0", "patch pods digits-worker-1"]
        assert dig(gateway.body(PODS, "digits-worker-0"), "metadata", "annotations", Annotation.WORLD) == "new"


@virtual_time
async def test_a_retry_waits_as_long_as_the_server_asks_for(gateway: FakeGateway) -> None:
    gateway.fail("create", PODS, TooManyRequests("slow down", status=429, retry_after=17.0))
    async with harnessed(wants_pods(1), gateway=gateway) as harness:
        harness.submit()
        while not gateway.names(PODS):
            await asyncio.sleep(0.5)
        assert 17.0 <= loop_time() <= 18.0
