"""How often the bytes of a job are decoded on their way from the API server to its first plan."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import datetime
from types import FunctionType
from typing import Any

import kopf
import msgspec
import pytest

from builders import NOW, manifest
from dtj.app.watch import JobWatch
from dtj.core.actions import Plan
from dtj.core.observed import Observed
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.decoding import reader
from dtj.kube.gateway import JOBS
from patience import PATIENCE_SECONDS
from support.fake_gateway import FakeGateway
from support.http_api import HttpApi

MARK = "a word of the spec that is nowhere else"


def count_decodings(patch: pytest.MonkeyPatch) -> list[str]:
    """The decoders that get the marked job from now on, by name, in order."""
    found: list[str] = []

    def counted(name: str, decode: Callable[..., Any]) -> Callable[..., Any]:
        def run(raw: Any, *arguments: Any, **named: Any) -> Any:
            if MARK.encode() in (raw.encode() if isinstance(raw, str) else bytes(raw)):
                found.append(name)
            return decode(raw, *arguments, **named)

        return run

    a_reader = reader(dict).__qualname__
    for module in [each for name, each in sys.modules.items() if name.startswith("dtj.")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value.__qualname__ == a_reader:
                patch.setattr(module, name, counted(f"{module.__name__}.{name}", value))
    patch.setattr(json, "loads", counted("json.loads", json.loads))
    patch.setattr(msgspec.json, "decode", counted("msgspec.json.decode", msgspec.json.decode))
    return found


async def test_a_job_is_decoded_once_before_it_is_kept_and_once_for_its_first_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = count_decodings(monkeypatch)
    planned: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def plan(observed: Observed, now: datetime) -> Plan:
        if not planned.done():
            planned.set_result([*found])
        return ()

    async with HttpApi(FakeGateway()) as api:

        async def connect() -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=api.url, trust_env=False)

        settings = EngineSettings(relist_every=None)
        engine = Engine(
            api.gateway, plan=plan, platform=Platform(), instance="test", settings=settings, now=lambda: NOW
        )
        running = [asyncio.create_task(engine.run()), asyncio.create_task(JobWatch(engine.feed, connect).run())]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not api.asked[f"open {JOBS.plural}"]:
                await asyncio.sleep(0.01)
            container = {"name": "trainer", "image": "x", "args": [MARK]}
            body = manifest(template={"spec": {"containers": [container]}})
            api.gateway.put(JOBS, {**body, "metadata": {"name": "digits", "generation": 1}})
            decoded = await planned
        engine.stop()
        running[1].cancel()
        await asyncio.wait(running)
    line, values = "dtj.kube.job_body._decode_event", "dtj.engine.job_store._decode"
    assert decoded == [line, values]
