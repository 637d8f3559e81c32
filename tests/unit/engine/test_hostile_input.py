"""What one tenant writes, or one pod answers, ends the operator for nobody else: other jobs are run as before.

What of it only must do no harm is in `operator_adversaries/found.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging

import msgspec
import pytest

from dtj.api.form import DTJ, Form
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.api.names import Annotation
from dtj.api.tfjob.form import TFJOB
from dtj.engine import progress
from dtj.engine.engine import EngineSettings
from dtj.kube.gateway import JOBS, PODS, SERVICES, TFJOBS, Resource
from support.engine_harness import Harness, harnessed
from support.fake_gateway import FakeGateway
from support.played_kubelets import play, put, runs, state_of
from support.played_tfjobs import tfjob
from support.virtual_time import virtual_time

LISTS = EngineSettings(workers=2, rest=0.0, relist_every=300.0)


async def the_others_go_on(harness: Harness, *, form: Form = DTJ) -> None:
    """A job that comes now is run as before, and no task has met an error."""
    body = tfjob({"Worker": 2}) if form is TFJOB else None
    put(harness, "other", body)
    await play(harness, "other")
    found = [name for name in harness.gateway.names(PODS) if name.startswith("other-")]
    assert len(found) == 2
    samples = [sample for metric in harness.engine._metrics.registry.collect() for sample in metric.samples]
    assert {s.labels["part"]: s.value for s in samples if s.name == "dtj_defects_total" and s.value} == {}


@pytest.mark.parametrize("levels", [40, 900])
@virtual_time
async def test_a_job_completes_whatever_its_pod_leaves_as_its_last_words(levels: int) -> None:
    async with harnessed() as harness:
        put(harness, "digits", roles={"worker": 1}, strategy="OneDevice")
        await play(harness, "digits")
        deep = "[" * levels + "]" * levels
        words = f'{{"progress": {{"metrics": {deep}}}, "export": {{"path": {deep}}}}}'
        end = {"exitCode": 0, "reason": "Completed", "message": words, "finishedAt": "2026-01-02T03:04:20Z"}
        ended: JsonObject = {"name": "trainer", "state": {"terminated": end}}  # type: ignore[dict-item]
        runs(harness.gateway, "digits-worker-0", phase="Succeeded", conditions=[], containerStatuses=[ended])
        await asyncio.sleep(60.0)
        assert state_of(harness, "digits") == "Succeeded"


WORLDS: dict[str, str] = {
    "no JSON": "x",
    "the last generation": json.dumps({"generation": 2**53, "members": {"worker": "0-1"}}),
    "the last generation that a pod is believed": json.dumps({"generation": 2**51, "members": {"worker": "0-1"}}),
}


@pytest.mark.parametrize("pod", ["digits-worker-1", "digits-tensorboard"])
@pytest.mark.parametrize("case", WORLDS)
@virtual_time
async def test_no_annotation_of_a_pod_ends_the_operator_or_keeps_a_new_member_out(
    case: str, pod: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(host: str, *_: object, **__: object) -> bytes:
        return b'{"phase": "Waiting"}' if host == "127.0.0.9" else b'{"phase": "Training", "step": 1, "world": 0}'

    monkeypatch.setattr(progress, "fetch", fetch)
    claim: JsonObject = {"claimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}}
    given: JsonObject = {"elastic": {"maxReplicas": 4}, "tensorBoard": {}, "checkpoint": claim}
    async with harnessed() as harness:
        stored = put(harness, "digits", **given)  # type: ignore[arg-type]  # arguments of manifest
        await play(harness, "digits", seconds=40.0)
        patch: JsonObject = {"metadata": {"annotations": {Annotation.WORLD: WORLDS[case]}}}
        await harness.gateway.patch(PODS, namespace="default", name=pod, patch=patch)
        await asyncio.sleep(30.0)
        body: JsonObject = json.loads(json.dumps(harness.gateway.body(JOBS, "digits")))
        body["spec"] = {**fields_of(stored["spec"]), "replicaSpecs": {"worker": {"replicas": 3}}}
        body["metadata"] = {**fields_of(body["metadata"]), "generation": 2}
        harness.tell(harness.gateway.put(JOBS, body))
        await asyncio.sleep(5.0)
        runs(harness.gateway, "digits-worker-2", podIP="127.0.0.9")
        await asyncio.sleep(120.0)
        world = dig(harness.gateway.body(JOBS, "digits"), "status", "world", "members", "worker")
        assert world == "0-2"
        await the_others_go_on(harness)


class RawJobs(FakeGateway):
    """Lists a job that no dictionary can hold, next to those that are stored."""

    raw = b""

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> object:  # type: ignore[override]
        listing = await super().list(resource, namespace=namespace, selector=selector)
        if resource != JOBS:
            return listing
        return type(listing)((self.raw, *listing.items), listing.resource_version)


@virtual_time
async def test_no_condition_that_kubeflow_wrote_ends_the_operator() -> None:
    gateway = FakeGateway()
    failed: JsonObject = {"type": "Failed", "status": "True", "reason": "TFJobFailed", "message": "x" * 40_000}
    ended: JsonObject = {"conditions": [failed]}
    kind: JsonObject = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
    gateway.put(TFJOBS, {**kind, "metadata": {"name": "x", "namespace": "t"}, "spec": {}, "status": ended})
    async with harnessed(gateway=gateway, form=TFJOB, settings=LISTS) as harness:
        harness.engine.feed.relist_soon()
        await asyncio.sleep(10.0)
        (record,) = harness.engine.state.jobs
        assert record.terminal, "an end stays an end"
        await the_others_go_on(harness, form=TFJOB)


@virtual_time
async def test_a_job_that_cannot_be_read_gets_one_event_and_what_was_known_of_it_stays() -> None:
    gateway = RawJobs()
    async with harnessed(gateway=gateway, settings=LISTS) as harness:
        put(harness, "digits")
        await play(harness, "digits")
        body = harness.gateway.body(JOBS, "digits")
        metadata = {**fields_of(body["metadata"]), "resourceVersion": "99", "generation": "one"}
        gateway.raw = msgspec.json.encode({**body, "metadata": metadata})
        for _ in range(3):
            harness.engine.feed.relist_soon()
            await asyncio.sleep(60.0)
        events = [call.body for call in gateway.calls if str(call).startswith("create events")]
        told = [text(event["note"]) for event in events if event["reason"] == "InvalidSpec"]
        assert len(told) == 1
        assert told[0].startswith("the operator cannot read this job, and does nothing for it: Expected `int | null`")
        assert [record.name for record in harness.engine.state.jobs] == ["digits"]
        await the_others_go_on(harness)


@virtual_time
async def test_a_service_that_cannot_be_read_is_named_once_and_what_was_known_of_it_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harnessed() as harness:
        put(harness, "digits")
        await play(harness, "digits")
        before = harness.engine.state.services.get(("default", "digits"))
        body = harness.gateway.body(SERVICES, "digits")
        for number in range(3):
            broken: JsonObject = {**body, "spec": {"selector": number}}
            harness.gateway.put(SERVICES, broken)
            await asyncio.sleep(1.0)
        harness.gateway.expire_watches()
        await asyncio.sleep(60.0)
        assert harness.engine.state.services.get(("default", "digits")) == before
        lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(lines) == 1
        assert lines[0].startswith("Service default/digits cannot be read and is ignored: ")
        await the_others_go_on(harness)
