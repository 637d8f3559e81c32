"""What does it cost to bring the workers of a large job back, each alone, when all of them are lost at once?

    PYTHONPATH=operator:tests:trainer-image python bench/losses.py

The engine of the operator over an API server in memory: no control plane. Real plans bring a job to Running, its
workers end while no operator runs, and the next operator finds them so. The figures are the CPU time of its longest
plan, that of its work until the restarts are in the job's status, which must be before any pod is made, and for how
long at most the event loop, which renews the lease, did nothing else until all pods were made again.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

import bad_tfjobs
import common
import figures
from builders import manifest, record_of
from dtj.api.form import DTJ, Form
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.names import State
from dtj.api.spec import Role
from dtj.api.tfjob.form import TFJOB
from dtj.core.actions import Plan
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import PLATFORM_OF_TFJOBS, Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.gateway import PODS, Listing, Resource, WatchEvent, jobs_of
from dtj.kube.job_body import job_from_object
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.played_pods import all_containers, status
from support.virtual_time import virtual_time

PAGE: Final = 500
"""Objects in one answer to a list."""

LAST_WORDS: Final = "\n".join([f'  File "/app/model_{line}.py", line {line}, in call' for line in range(40)])

ENDS: Final[dict[str, tuple[int, str, JsonObject]]] = {
    "evicted": (137, "", {"reason": "Evicted", "message": "The node was low on resource: memory."}),
    "exit code 75": (75, "a peer was lost", {}),
    "exit code 1": (1, f"{LAST_WORDS}\nValueError: shapes do not match", {}),
}
"""How all workers end: with this exit code and these last words, and with this in the status of the pod."""


@dataclass(frozen=True)
class Scene:
    """A job whose workers come back alone, and what it is run with."""

    make: Callable[[int], JsonObject]
    form: Form = DTJ
    platform: Platform = field(default_factory=Platform)


def _parameter_server(workers: int) -> JsonObject:
    roles = {"chief": 1, "ps": 2, "worker": workers}
    return manifest(strategy="ParameterServer", roles=roles, runPolicy={"backoffLimit": workers})


def _alone(workers: int) -> JsonObject:
    return manifest(roles={"worker": workers}, runPolicy={"restartScope": "Pod", "backoffLimit": workers})


def _tfjob(workers: int) -> JsonObject:
    """Its workers are dynamic: the addresses of so many do not fit into TF_CONFIG."""
    roles = {"PS": bad_tfjobs.role(2), "Worker": bad_tfjobs.role(workers, restartPolicy="OnFailure")}
    spec = {"enableDynamicWorker": True, "runPolicy": {"backoffLimit": workers}}
    return bad_tfjobs.tfjob(NAME, spec=spec, **roles)


NAME: Final = "digits"

SCENES: Final = {
    "ParameterServer": Scene(_parameter_server),
    "restartScope: Pod": Scene(_alone),
    "TFJob": Scene(_tfjob, TFJOB, PLATFORM_OF_TFJOBS),
}


class Server(FakeGateway):
    """An API server that lists in pages, tells its news one by one, and knows when the restarts were written."""

    def __init__(self) -> None:
        super().__init__()
        self.written_at: float | None = None
        """CPU time of this process."""

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        return self._pages(resource, namespace, selector)

    async def _pages(self, resource: Resource, namespace: str | None, selector: str) -> AsyncIterator[Listing]:
        whole = await self.list(resource, namespace=namespace, selector=selector)
        for first in range(0, max(len(whole.items), 1), PAGE):
            yield Listing(whole.items[first : first + PAGE], whole.resource_version)
            await asyncio.sleep(0)

    async def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        news = super().watch(resource, namespace=namespace, selector=selector, resource_version=resource_version)
        async for event in news:
            yield event
            await asyncio.sleep(0)

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        body = await super().patch(resource, namespace=namespace, name=name, patch=patch, subresource=subresource)
        if self.written_at is None and "restarting" in str(patch):
            self.written_at = time.process_time()
        return body


@virtual_time
async def _start(scene: Scene, workers: int, server: Server) -> None:
    """Have the pods of the job made, and run."""
    resource, settings = jobs_of(scene.form), EngineSettings(rest=30.0, relist_every=None)
    body: JsonObject = {**scene.make(workers), "metadata": {"name": NAME, "generation": 1}}
    async with harnessed(gateway=server, settings=settings, platform=scene.platform, form=scene.form) as harness:
        harness.tell(server.put(resource, body))
        await asyncio.sleep(60.0)
        _play(server, Role.PS, None)
        _play(server, Role.CHIEF, None)
        _play(server, Role.WORKER, None)
        await asyncio.sleep(60.0)
    found = server.body(resource, NAME)
    if record_of(found).state != State.RUNNING:
        raise SystemExit(f"the job is not Running: {dig(found, 'status')}")


def _play(server: Server, role: Role, code: int | None, words: str = "", **more: JsonValue) -> None:
    """What kubelets write of the pods of a role; those that have no exit code run."""
    for name in server.names(PODS):
        if name.startswith(f"{NAME}-{role}-"):
            body = server.body(PODS, name)
            told = status(body, all_containers(body, code), message=words, ip="10.0.0.1")
            spec: JsonObject = {**fields_of(body["spec"]), "nodeName": "node-1"}
            server.put(PODS, {**body, "spec": spec, "status": {**told, **more}})


async def _measure(scene: Scene, workers: int, server: Server) -> str:
    """What another operator does about the job; all its pods are gone from their nodes for a minute."""
    plans: list[float] = []

    def planned(observed: Observed, now: datetime) -> Plan:
        began = time.process_time()
        found = plan(observed, now + timedelta(seconds=60))
        plans.append(time.process_time() - began)
        return found

    settings = EngineSettings(relist_every=None)
    engine = Engine(server, plan=planned, platform=scene.platform, instance="bench", form=scene.form, settings=settings)
    blocked = common.Blocked()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(engine.run())
        while not engine.synced:
            await asyncio.sleep(0.01)
        gc.collect()
        gc.freeze()  # an operator does not have the objects of the API server
        watching = group.create_task(common.watch_loop(blocked))
        began = time.process_time()
        engine.feed.put(job_from_object(server.body(jobs_of(scene.form), NAME)))
        while sum(name.endswith("-r1") for name in server.names(PODS)) < workers:
            await asyncio.sleep(0.2)
        watching.cancel()
        engine.stop()
        await running
    assert server.written_at is not None
    written = server.written_at - began
    return f"longest plan {max(plans):.2f} s, until written {written:.2f} s; the loop was held for {blocked} at most"


def main() -> None:
    parser = figures.parser(__doc__, workers=(10_000, "workers of each job"))
    parser.add_argument("--scene", default="", help="only jobs whose name holds this text")
    options = parser.parse_args()
    figures.print_machine()
    for name, scene in SCENES.items():
        for how, (code, words, more) in ENDS.items() if options.scene in name else ():
            server = Server()
            _start(scene, options.workers, server)
            _play(server, Role.WORKER, code, words, **more)
            figures.print_figure(f"{name}, {how}", asyncio.run(_measure(scene, options.workers, server)))


if __name__ == "__main__":
    main()
