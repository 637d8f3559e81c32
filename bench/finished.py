"""How much memory does a finished job take in the operator?

    PYTHONPATH=operator:tests:trainer-image python bench/finished.py

The engine of the operator over an API server in memory: no control plane. The jobs are those of an example, each with
the status that the operator wrote at its end. The figures are what Python allocated, by tracemalloc, before and after
the engine has planned them all, and the calls that ten full lists of them cause. kopf's own memory of each job is not
in them: the script measures it apart, from kopf's class.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

from kopf._core.reactor.inventory import ResourceMemories

import figures
from builders import manifest
from dtj.api.json import JsonObject
from dtj.core.planner import plan
from dtj.engine.engine import EngineSettings
from dtj.kube.gateway import JOBS
from support.campaigns.stories import completed
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time

LISTS = 10


def main() -> None:
    number = figures.parser(__doc__, jobs=(2000, "number of finished jobs")).parse_args().jobs
    figures.print_machine()
    virtual_time(_measure)(number)


async def _measure(number: int) -> None:
    finished = await _finished()
    gateway = FakeGateway()
    for index in range(number):
        gateway.put(JOBS, {**finished, "metadata": {"name": f"digits-{index}", "generation": 1}})
    async with harnessed(
        lambda observed: plan(observed, harness.now()),
        gateway=gateway,
        settings=EngineSettings(rest=0.0, relist_every=None),
    ) as harness:
        tracemalloc.start()
        before = _allocated()
        await harness.engine.feed.relist(gateway, None)
        await asyncio.sleep(60.0)
        plans = len(harness.seen)
        harness.seen.clear()
        after = _allocated()
        tracemalloc.stop()
        gateway.calls.clear()
        for _ in range(LISTS):
            await harness.engine.feed.relist(gateway, None)
            await asyncio.sleep(60.0)
        others = [call for call in gateway.calls if call.verb != "list"]
        figures.print_figure("engine, for each job", f"{(after - before) / number:.0f} bytes")
        figures.print_figure("kopf, for each job", f"{await _kopf(number):.0f} bytes")
        figures.print_figure("plans at the first list", f"{plans} of {number} jobs")
        figures.print_figure(f"plans and calls at {LISTS} more lists", f"{len(harness.seen)}, {len(others)}")


async def _finished() -> JsonObject:
    """A job that a real plan has brought to its end."""
    cluster = await completed()
    return {**manifest("digits"), "status": cluster.api.body(JOBS, "digits")["status"]}


async def _kopf(number: int) -> float:
    memories: Any = ResourceMemories()
    tracemalloc.start()
    before = _allocated()
    for index in range(number):
        await memories.recall({"metadata": {"uid": f"0b5e4c1e-0000-4000-8000-{index:012}"}})
    taken = _allocated() - before
    tracemalloc.stop()
    return taken / number


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    main()
