"""10,000 running jobs and 100,000 pods in one operator: memory, the start, a list again, and rest.

    PYTHONPATH=operator:tests:trainer-image python bench/large.py

The engine of the operator with the real planner, over an API server in memory that makes the objects of each page when
it is asked for them and keeps none, so that the memory of the process is the operator's. No control plane, and no kopf:
the jobs come by the lists that the operator makes besides kopf. All jobs are the copy of one that real plans brought to
Running. An operator that starts with them was killed and is started again: it plans each job, and must write nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator
from os import getpid

import msgspec

import common
import figures
from builders import manifest
from dtj.api.json import JsonObject, dig
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.gateway import JOBS, PODS, SERVICES, Listing, Resource
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import settled, virtual_time

PAGE = 500
JOBS_A_NAMESPACE = 100
NAME, NAMESPACE = "digits-template", "default"
COPIED = (JOBS, PODS, SERVICES)


class ManyJobs(FakeGateway):
    """Lists ``number`` copies of the objects of one job, page by page."""

    def __init__(self, template: FakeGateway, number: int) -> None:
        super().__init__()
        self.number = number
        self._version = 1_000_000
        self._templates = {resource: _objects(template, resource) for resource in COPIED}

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        if resource not in COPIED:
            return super().pages(resource, namespace=namespace, selector=selector)
        return self._copies(resource)

    async def _copies(self, resource: Resource) -> AsyncIterator[Listing]:
        each = max(1, PAGE // len(self._templates[resource]))
        for first in range(0, self.number, each):
            of_page = range(first, min(first + each, self.number))
            items = tuple(_copy(text, number) for number in of_page for text in self._templates[resource])
            yield Listing(items, str(self._version))
            await asyncio.sleep(0)


def _objects(gateway: FakeGateway, resource: Resource) -> list[bytes]:
    return [msgspec.json.encode(gateway.body(resource, name)) for name in gateway.names(resource)]


def _copy(template: bytes, number: int) -> bytes:
    """The object of another job: of another name, UID and namespace."""
    suffix = f"{number:08d}".encode()
    copy = template.replace(NAME.encode(), b"digits-" + suffix).replace(b'"uid-', b'"uid-' + suffix + b"-")
    return copy.replace(b'"namespace":"default"', b'"namespace":"team-%d"' % (number // JOBS_A_NAMESPACE))


@virtual_time
async def _template(workers: int, found: list[FakeGateway]) -> None:
    """One job that real plans have brought to Running."""
    async with harnessed(lambda observed: plan(observed, harness.now())) as harness:
        gateway = harness.gateway
        body: JsonObject = {**manifest(NAME, roles={"worker": workers})}
        body["metadata"] = {"name": NAME, "generation": 1}
        harness.tell(gateway.put(JOBS, body))
        await settled()
        status: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name in gateway.names(PODS):
            gateway.put(PODS, {**gateway.body(PODS, name), "status": status})
        for _ in range(5):
            await asyncio.sleep(30.0)
            harness.tell(gateway.body(JOBS, NAME))
            await settled()
        state = dig(gateway.body(JOBS, NAME), "status", "state")
        if state != "Running":
            raise SystemExit(f"the template of the jobs is {state}, not Running")
        found.append(gateway)


async def _measure(template: FakeGateway, options: argparse.Namespace) -> None:
    gateway = ManyJobs(template, options.jobs)
    settings = EngineSettings(relist_every=None)
    engine = Engine(gateway, plan=plan, platform=Platform(), instance="bench", settings=settings)
    empty, began, cpu = common.memory(getpid()), time.monotonic(), time.process_time()
    running = asyncio.create_task(engine.run())
    await engine.feed.relist(gateway, None)
    await _at_rest(engine)
    figures.print_figure("planned", f"after {time.monotonic() - began:.1f} s, CPU {time.process_time() - cpu:.1f} s")
    figures.print_figure("jobs, pods", f"{sum(1 for _ in engine.state.jobs):,}, {len(engine.state.pods):,}")
    gc.collect()
    figures.print_figure(
        "memory",
        f"{common.memory(getpid()):.0f} MiB, peak {common.memory(getpid(), peak=True):.0f} MiB; {empty:.0f} MiB before",
    )
    cpu = time.process_time()
    await engine.feed.relist(gateway, None)
    await _at_rest(engine)
    figures.print_figure("a list again", f"CPU {time.process_time() - cpu:.1f} s, with that of the server in memory")
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(options.rest)
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    figures.print_figure("at rest", f"{100 * share:.1f} % of a core in {options.rest:.0f} s")
    figures.print_figure("writes", str(len(gateway.writes())))
    engine.stop()
    await asyncio.wait([running])


async def _at_rest(engine: Engine) -> None:
    while not engine.synced or len(engine.queue) or engine.queue.unfinished_work():
        await asyncio.sleep(0.05)


def main() -> None:
    options = figures.parser(
        __doc__,
        jobs=(10_000, "number of jobs"),
        workers=(10, "replicas of each"),
        rest=(30.0, "seconds without any change"),
    ).parse_args()
    figures.print_machine()
    templates: list[FakeGateway] = []
    _template(options.workers, templates)
    asyncio.run(_measure(templates[0], options))


if __name__ == "__main__":
    main()
