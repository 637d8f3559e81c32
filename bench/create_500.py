"""How fast does the operator create the pods of one large job, against a bare parallel loop?

Both create the same pods, one after the other in the same run, on the testbed's control plane (a real API server
with admission, scheduler and garbage collection, but no node). The loop is the ceiling: 50 connections, bodies that
are encoded beforehand, nothing decided and nothing watched. It uses the tests' helpers::

    PYTHONPATH=operator:tests python bench/create_500.py --workers 500 --rounds 2
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from dtj.api.json import JsonObject
from dtj.kube.config import ConnectionSource
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess, grant
from support.waiting import eventually
from testbed import ControlPlane, binaries

CONNECTIONS = 50
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Measured:
    """One creation of all pods."""

    seconds: float
    pods: int
    writes: int = 0
    cpu_seconds: float = 0.0
    peak_rss: int = 0

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.pods / self.seconds


def main() -> None:
    options = _options()
    built = binaries.ensure()
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane.launch(f"bench-{os.getpid()}", owner=os.getpid(), binaries=built)
        try:
            plane.install_crds()
            by_operator, by_loop = [], []
            for number in range(options.rounds):
                log = Path(directory) / f"operator-{number}.log"
                measured, bodies = measure_operator(plane, workers=options.workers, log=log)
                by_operator.append(measured)
                by_loop.append(asyncio.run(measure_loop(plane, bodies)))
        finally:
            plane.stop()
    report(by_operator, by_loop)


def measure_operator(plane: ControlPlane, *, workers: int, log: Path) -> tuple[Measured, list[JsonObject]]:
    """Have the operator create a job's pods. Also returns the pods, for the loop to create the same."""
    world = _new_world(plane)
    with OperatorProcess.serving(plane, [world.namespace], log=log) as operator:
        # A first small job: what is measured is not the start of the process.
        world.submit("warm-up", roles={"worker": 1})
        world.await_pods(["worker-0"], "warm-up")
        before, mark = _cpu_seconds(operator.pid), plane.audit.mark()
        started = time.perf_counter()
        world.submit("large", roles={"worker": workers})
        _await_pods(world, workers + 1)
        seconds = time.perf_counter() - started
        eventually(lambda: _is_counted(world, workers), seconds=60.0)
        measured = Measured(
            seconds=seconds,
            pods=workers,
            writes=len(plane.audit.writes(since=mark, user=USER, namespace=world.namespace)),
            cpu_seconds=_cpu_seconds(operator.pid) - before,
            peak_rss=_peak_rss(operator.pid),
        )
    bodies = [_as_new(body) for body in world.pods("large").values()]
    plane.delete_namespace(world.namespace)
    return measured, bodies


async def measure_loop(plane: ControlPlane, bodies: list[JsonObject]) -> Measured:
    """Create the same pods with nothing but a loop."""
    world = _new_world(plane)
    url = f"{plane.url}/api/v1/namespaces/{world.namespace}/pods"
    encoded = iter([json.dumps(body).encode() for body in bodies])
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=await _tls(plane))
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def create() -> None:
            for body in encoded:
                async with session.post(url, data=body) as reply:
                    await reply.read()
                    reply.raise_for_status()

        started = time.perf_counter()
        await asyncio.gather(*(create() for _ in range(CONNECTIONS)))
        seconds = time.perf_counter() - started
    plane.delete_namespace(world.namespace)
    return Measured(seconds=seconds, pods=len(bodies))


def report(by_operator: list[Measured], by_loop: list[Measured]) -> None:
    """Print what was measured; the ratio compares the medians."""
    print(f"machine: {os.cpu_count()} cores, {_memory_gib():.0f} GiB, load {os.getloadavg()[0]:.1f}")
    for name, rounds in (("operator", by_operator), ("bare loop", by_loop)):
        times = ", ".join(f"{one.seconds:.2f} s ({one.rate:.0f} pods/s)" for one in rounds)
        print(f"{name:<10} {rounds[0].pods} pods in {times}")
    ratio = _median(by_operator) / _median(by_loop)
    print(f"ratio      {ratio:.2f} of the loop's time")
    last = by_operator[-1]
    print(f"API writes {last.writes} for {last.pods} pods")
    print(f"cost       {last.cpu_seconds:.2f} s of CPU, {last.peak_rss / 2**20:.0f} MiB peak RSS")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=500, help="replicas of the job (default 500)")
    parser.add_argument("--rounds", type=int, default=2, help="how often both are measured (default 2)")
    return parser.parse_args()


def _new_world(plane: ControlPlane) -> JobWorld:
    namespace = plane.new_namespace("bench")
    grant(plane, namespace)
    return JobWorld(plane, namespace)


def _await_pods(world: JobWorld, count: int) -> None:
    """Wait until so many pods are there, by counting alone: a list of them all would burden the server."""
    path = f"/api/v1/namespaces/{world.namespace}/pods?limit=1"
    while True:
        found = world.plane.api.request("GET", path)
        if len(found["items"]) + found["metadata"].get("remainingItemCount", 0) >= count:
            return
        time.sleep(POLL_SECONDS)


def _is_counted(world: JobWorld, workers: int) -> None:
    assert world.job("large").status.replica_statuses["worker"].active == workers


def _as_new(body: JsonObject) -> JsonObject:
    """A pod as it was asked for, without its owner, which the garbage collector would miss."""
    metadata, spec = body["metadata"], body["spec"]
    assert isinstance(metadata, dict)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": metadata["name"], "labels": metadata["labels"]},
        "spec": spec,
    }


async def _tls(plane: ControlPlane) -> ssl.SSLContext:
    """The administrator's connection, as its kubeconfig says."""
    configuration = await ConnectionSource(kubeconfig=str(plane.kubeconfig)).load()
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _median(rounds: list[Measured]) -> float:
    return statistics.median(one.seconds for one in rounds)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


if __name__ == "__main__":
    main()
