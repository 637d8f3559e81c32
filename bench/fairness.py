"""How long does one namespace wait for another that wants everything?

    PYTHONPATH=operator:tests:trainer-image python bench/fairness.py

32 jobs of one namespace create 50 pods each, against an API server that takes 500 ms for each creation of a pod (an
admission webhook does that). A few seconds later a job of another namespace wants 4 pods. Measured is the time until it
has them, alone and next to the others, several times; and whether a lease would have been renewed meanwhile.

The engine, the gateway and the lease are real; the API server is one in memory that is spoken to by HTTP, in the same
process. It takes no control plane, and no other figure comes from it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import figures
from builders import manifest
from dtj.api.json import JsonObject
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.gateway import JOBS, PODS, Resource
from dtj.kube.job_body import job_from_object
from dtj.kube.lease import Lease, LeaseLost
from support.fake_gateway import FakeGateway
from support.http_api import HttpApi

WAIT_SECONDS = 300.0


class SlowPods(FakeGateway):
    """Takes its time for each pod."""

    seconds = 0.0

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        if resource == PODS:
            await asyncio.sleep(self.seconds)
        return await super().create(resource, namespace=namespace, body=body, dry_run=dry_run)


class Cluster:
    """An API server, and an engine at work on it."""

    def __init__(self, server: SlowPods, engine: Engine) -> None:
        self.server = server
        self.engine = engine

    def submit(self, name: str, *, namespace: str, workers: int) -> None:
        body = manifest(name, roles={"worker": workers})
        body["metadata"] = {"name": name, "namespace": namespace, "generation": 1}
        self.engine.feed.put(job_from_object(self.server.put(JOBS, body)))

    def pods_of(self, job: str) -> int:
        return sum(name.startswith(f"{job}-worker-") for name in self.server.names(PODS))

    async def seconds_to_start(self, name: str, *, workers: int) -> float:
        """How long a job of a namespace of its own takes to have its pods."""
        began = time.monotonic()
        self.submit(name, namespace=f"of-{name}", workers=workers)
        while self.pods_of(name) < workers and time.monotonic() - began < WAIT_SECONDS:
            await asyncio.sleep(0.01)
        return time.monotonic() - began


async def measure(options: argparse.Namespace, directory: Path) -> None:
    async with AsyncExitStack() as stack:
        server = SlowPods()
        server.seconds = options.seconds
        api = await stack.enter_async_context(HttpApi(server))
        source = ConnectionSource(kubeconfig=api.kubeconfig(directory))
        gateway = await KubeGateway.connect(source)
        stack.push_async_callback(gateway.close)
        settings = EngineSettings(relist_every=None)
        engine = Engine(gateway, plan=plan, platform=Platform(), instance="bench", settings=settings)
        cluster = Cluster(server, engine)
        running = asyncio.create_task(engine.run())
        lease_gateway = await KubeGateway.connect(source)
        stack.push_async_callback(lease_gateway.close)
        lease = Lease(lease_gateway, namespace="operator", name="bench", identity="bench")
        await lease.acquire()
        holding = asyncio.create_task(lease.hold())
        alone = [await cluster.seconds_to_start(f"alone-{n}", workers=options.workers) for n in range(options.rounds)]
        for number in range(options.jobs):
            cluster.submit(f"greedy-{number}", namespace="greedy", workers=options.pods)
        await asyncio.sleep(options.head_start)
        beside = [await cluster.seconds_to_start(f"beside-{n}", workers=options.workers) for n in range(options.rounds)]
        busy = sum(cluster.pods_of(f"greedy-{n}") for n in range(options.jobs)) < options.jobs * options.pods
        holding.cancel()
        engine.stop()
        await asyncio.wait([running, holding])
    figures.print_machine()
    figures.print_figure("alone", _seconds(alone))
    figures.print_figure(f"next to {options.jobs} jobs of {options.pods} pods", _seconds(beside))
    figures.print_figure("delay", f"{max(beside) - median(alone):.2f} s at most")
    figures.print_figure("the others were at work to the end", "yes" if busy else "no: give them more pods")
    lost = not holding.cancelled() and isinstance(holding.exception(), LeaseLost)
    figures.print_figure("lease", "lost" if lost else "held")


def _seconds(found: list[float]) -> str:
    return f"{', '.join(f'{seconds:.2f}' for seconds in found)} s"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(_options(), Path(directory)))


def _options() -> argparse.Namespace:
    return figures.parser(
        __doc__,
        jobs=(32, "jobs of the greedy namespace"),
        pods=(50, "pods of each"),
        workers=(4, "pods of the other namespaces' jobs"),
        seconds=(0.5, "what the creation of a pod takes"),
        head_start=(3.0, "of the greedy namespace, in seconds"),
        rounds=(3, "jobs that are measured, each way"),
    ).parse_args()


if __name__ == "__main__":
    main()
