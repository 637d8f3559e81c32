"""Jobs in the engine of a test, and kubelets that run their pods."""

from __future__ import annotations

import asyncio

from builders import manifest
from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.kube.gateway import PODS, jobs_of
from support.engine_harness import Harness
from support.fake_gateway import FakeGateway
from support.virtual_time import settled


def put(harness: Harness, name: str, body: JsonObject | None = None, **spec: object) -> JsonObject:
    """A user creates a job, and the watch reports it."""
    body = manifest(name, **spec) if body is None else body  # type: ignore[arg-type]
    metadata: JsonObject = {"name": name, "namespace": "default", "generation": 1, "uid": f"uid-{name}"}
    kind: JsonObject = {"apiVersion": harness.form.api_version, "kind": harness.form.kind}
    stored = harness.gateway.put(jobs_of(harness.form), {**body, **kind, "metadata": metadata})
    harness.tell(stored)
    return stored


async def play(harness: Harness, job: str, *, seconds: float = 10.0, **status: object) -> None:
    """Let the kubelets run the pods of a job, for some time."""
    for _ in range(4):
        await asyncio.sleep(seconds / 4)
        for name in harness.gateway.names(PODS):
            if name.startswith(f"{job}-"):
                runs(harness.gateway, name, **status)
    await settled()


def runs(gateway: FakeGateway, name: str, **status: object) -> None:
    body = gateway.body(PODS, name)
    spec = fields_of(body["spec"])
    containers: list[JsonObject] = [
        {"name": text(container.get("name")), "state": {"running": {}}} for container in objects(spec["containers"])
    ]
    ready: JsonObject = {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [*containers],
    }
    gateway.put(PODS, {**body, "spec": {**spec, "nodeName": "n1"}, "status": {**ready, **status}})  # type: ignore[dict-item]


def state_of(harness: Harness, name: str) -> str:
    return text(dig(harness.gateway.body(jobs_of(harness.form), name), "status", "state"))
