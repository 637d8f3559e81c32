"""Why a pod that has a node does not start is in its events alone; the job says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Condition
from dtj.api.status import ConditionStatus
from dtj.core.status import format_time
from dtj.kube.errors import Forbidden
from dtj.kube.gateway import EVENTS, JOBS, PODS
from support.engine_harness import Harness, harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time

ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other-0'


@asynccontextmanager
async def starting(gateway: FakeGateway, **run_policy: object) -> AsyncIterator[Harness]:
    """A job of two workers whose pods have nodes, of which worker-1 does not start."""
    async with harnessed(gateway=gateway) as harness:
        created = format_time(harness.now())
        metadata: JsonObject = {"name": "digits", "generation": 1, "creationTimestamp": created}
        body: JsonObject = {**manifest(roles={"worker": 2}, runPolicy=run_policy), "metadata": metadata}
        harness.tell(gateway.put(JOBS, body))
        await asyncio.sleep(1.0)
        for index, phase in enumerate(("Running", "Pending")):
            pod = gateway.body(PODS, f"digits-worker-{index}")
            ready: JsonObject = {"type": "Ready", "status": str(phase == "Running")}
            spec = object_at(pod, "spec")
            status: JsonObject = {"phase": phase, "conditions": [ready]}
            gateway.put(PODS, {**pod, "spec": {**spec, "nodeName": "n1"}, "status": status})
        yield harness


def report(harness: Harness, reason: str, note: str, *, pod: str = "digits-worker-1") -> None:
    """An event, as a kubelet or the attach controller reports it."""
    regarding: JsonObject = {"kind": "Pod", "name": pod, "uid": dig(harness.gateway.body(PODS, pod), "metadata", "uid")}
    event: JsonObject = {"metadata": {"name": reason.lower()}, "type": "Warning", "reason": reason, "note": note}
    at = format_time(harness.now())
    harness.gateway.put(EVENTS, {**event, "regarding": regarding, "deprecatedLastTimestamp": at})


def condition(harness: Harness, kind: Condition) -> ConditionStatus:
    found = Job.from_object(harness.gateway.body(JOBS, "digits")).status.condition(kind)
    assert found is not None
    return found


@pytest.mark.parametrize("reason", ["FailedAttachVolume", "FailedMount", "FailedCreatePodSandBox"])
@virtual_time
async def test_what_events_say_of_a_pod_that_waits_is_in_pods_ready(reason: str) -> None:
    async with starting(FakeGateway()) as harness:
        report(harness, reason, f"{ATTACH}\n")
        await asyncio.sleep(30.0)
        ready = condition(harness, Condition.PODS_READY)
        assert ready.message == f"1 of 2 pods are ready; digits-worker-1: {ATTACH} ({reason})"
        assert ready.reason == "PodStartFailed"


@virtual_time
async def test_the_message_of_the_deadline_says_it_too_and_keeps_it() -> None:
    async with starting(FakeGateway(), startDeadlineSeconds=60) as harness:
        report(harness, "FailedAttachVolume", ATTACH)
        await asyncio.sleep(600.0)
        failed = condition(harness, Condition.FAILED)
        assert (failed.status, failed.reason) == ("True", "StartDeadlineExceeded")
        assert f"digits-worker-1: {ATTACH} (FailedAttachVolume)" in failed.message


@virtual_time
async def test_what_is_over_is_not_said_any_more() -> None:
    async with starting(FakeGateway()) as harness:
        report(harness, "FailedMount", ATTACH)
        await asyncio.sleep(1200.0)
        assert condition(harness, Condition.PODS_READY).message == "1 of 2 pods are ready"


@virtual_time
async def test_events_are_read_ever_more_rarely_while_the_same_pods_wait(gateway: FakeGateway) -> None:
    async with starting(gateway):
        gateway.calls.clear()
        await asyncio.sleep(600.0)
        reads = [call for call in gateway.calls if (call.verb, call.plural) == ("list", EVENTS.plural)]
        assert 4 <= len(reads) <= 12


@virtual_time
async def test_without_the_right_to_read_events_a_job_goes_on(gateway: FakeGateway) -> None:
    gateway.fail("list", EVENTS, Forbidden("cannot list events", status=403, reason="Forbidden"), times=100)
    async with starting(gateway) as harness:
        await asyncio.sleep(60.0)
        ready = condition(harness, Condition.PODS_READY)
        assert (ready.reason, ready.message) == ("WaitingForPods", "1 of 2 pods are ready")
