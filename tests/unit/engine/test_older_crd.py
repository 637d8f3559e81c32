"""A CRD that is older than the operator: the API server drops fields of the status that the operator writes."""

from __future__ import annotations

import asyncio

import pytest

from builders import manifest
from dtj.api.form import DTJ
from dtj.api.json import JsonObject, dig, fields_of, lacking, paths
from dtj.api.names import Reason
from dtj.api.status import JobStatus, ReplicaStatus
from dtj.core.actions import PatchStatus, Plan, RequeueAfter
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import Observed
from dtj.kube.gateway import EVENTS, JOBS, LOCAL_QUEUES, WORKLOADS, Resource, jobs_of
from dtj.kube.observed import resource_of
from support.engine_harness import Harness, harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time


class OlderCRD(FakeGateway):
    """It has no field ``queue`` of a status, and no ``memoryIncreases`` of a role."""

    outdated = True

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        if self.outdated and (resource, subresource) == (JOBS, "status"):
            status = {key: value for key, value in fields_of(patch["status"]).items() if key != "queue"}
            roles: JsonObject = {
                role: {key: value for key, value in fields_of(counts).items() if key != "memoryIncreases"}
                for role, counts in fields_of(status.get("replicaStatuses")).items()
            }
            patch = {**patch, "status": {**status, "replicaStatuses": roles} if roles else status}
        return await super().patch(resource, namespace=namespace, name=name, patch=patch, subresource=subresource)


WANTED = JobStatus(attempt=1, queue="default", replica_statuses={"worker": ReplicaStatus(memory_increases=1, failed=1)})


def at_once(observed: Observed) -> Plan:
    """Write the status until it is there."""
    return () if observed.job.status == WANTED else (PatchStatus(WANTED), RequeueAfter(0.0))


def events(harness: Harness) -> list[str]:
    found = (harness.gateway.body(EVENTS, name) for name in harness.gateway.names(EVENTS))
    return [str(dig(body, "note")) for body in found if body["reason"] == Reason.STATUS_DROPPED]


def status_writes(harness: Harness) -> int:
    return harness.writes().count("patch distributedtrainingjobs digits")


@virtual_time
async def test_what_is_dropped_is_written_once_and_named_in_one_event_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harnessed(at_once, gateway=OlderCRD()) as harness:
        harness.submit()
        await asyncio.sleep(600.0)
        assert status_writes(harness) == 1
        assert harness.seen[-1].job.status == WANTED
        (words,) = events(harness)
        assert words.startswith(
            "the CRD distributedtrainingjobs.training.dtj.dev is older than the operator and drops "
            "status.replicaStatuses.worker.memoryIncreases, status.queue: apply crds/ of this version"
        )
        assert caplog.messages.count(words) == 1


@virtual_time
async def test_a_job_goes_on_that_depends_on_what_is_dropped() -> None:
    gateway = OlderCRD()
    gateway.installed = {resource_of(APIS[0])}
    gateway.put(LOCAL_QUEUES, {"metadata": {"name": "default", "namespace": "default"}})
    async with harnessed(gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(600.0)
        assert gateway.names(WORKLOADS) == ["digits"]
        assert status_writes(harness) < 5


@virtual_time
async def test_a_change_of_the_job_by_others_does_not_bring_back_what_was_dropped() -> None:
    async with harnessed(at_once, gateway=OlderCRD()) as harness:
        job = harness.submit()
        await asyncio.sleep(10.0)
        body = harness.gateway.body(jobs_of(DTJ), "digits")
        harness.tell(harness.gateway.put(JOBS, {**body, "spec": {**manifest()["spec"], "x": 1}}))  # type: ignore[dict-item]
        await asyncio.sleep(10.0)
        assert harness.seen[-1].job.uid == job.uid
        assert harness.seen[-1].job.status == WANTED
        assert status_writes(harness) == 1


@virtual_time
async def test_once_the_crd_is_upgraded_the_next_change_stores_all() -> None:
    gateway = OlderCRD()
    later = WANTED.model_copy(update={"state": "Running"})
    wanted = [WANTED]

    def plan(observed: Observed) -> Plan:
        return () if observed.job.status == wanted[-1] else (PatchStatus(wanted[-1]), RequeueAfter(0.0))

    async with harnessed(plan, gateway=gateway) as harness:
        harness.submit()
        await asyncio.sleep(10.0)
        gateway.outdated = False
        wanted.append(later)
        await harness.look_again()
        assert JobStatus.from_object(fields_of(gateway.body(JOBS, "digits")["status"])) == later


def test_defaults_that_the_api_server_adds_are_not_lacking() -> None:
    wanted: JsonObject = {"a": {"b": 1, "c": 2}, "d": [1], "e": 1.0}
    assert lacking({"a": {"b": 1, "c": 2, "new": 0}, "d": [1], "e": 1, "more": {}}, wanted) == {}
    assert lacking({"a": {"b": 1}, "d": [2], "e": 1}, wanted) == {"a": {"c": 2}, "d": [1]}
    assert paths({"a": {"c": 2}, "d": [1]}) == ["a.c", "d"]
