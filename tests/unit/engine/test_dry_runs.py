"""Jobs whose pods are alike are checked together; what is refused is refused to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from builders import manifest
from dtj.api.json import JsonObject, dig
from dtj.core.planner import plan
from dtj.engine.dry_runs import KEPT_SECONDS
from dtj.kube.errors import Forbidden, Invalid
from dtj.kube.gateway import JOBS, PODS, SERVICES
from support.engine_harness import Harness, harnessed
from support.virtual_time import settled, virtual_time

WORDS = "spec.containers[0].image: Required value"


@asynccontextmanager
async def operated() -> AsyncIterator[Harness]:
    """An engine with the real planner over calls that take a moment."""
    async with harnessed(lambda observed: plan(observed, harness.now())) as harness:
        harness.gateway.latency = 0.05
        yield harness


def submit(harness: Harness, *jobs: str, namespace: str = "default", **spec: object) -> None:
    for name in jobs:
        body: JsonObject = {**manifest(name, **spec)}  # type: ignore[arg-type]
        body["metadata"] = {"name": name, "namespace": namespace, "generation": 1}
        harness.engine.feed.put(harness.gateway.put(JOBS, body))


def asked(harness: Harness) -> list[str]:
    return [call.name for call in harness.gateway.calls if call.dry_run]


def made(harness: Harness) -> int:
    return len(harness.gateway.names(PODS))


@virtual_time
async def test_jobs_of_one_template_are_checked_once_also_at_the_same_moment() -> None:
    async with operated() as harness:
        submit(harness, "job-1", "job-2", "job-3")
        await asyncio.sleep(5.0)
        submit(harness, "job-4")
        await asyncio.sleep(5.0)
        assert len(asked(harness)) == 1
        assert made(harness) == 4 * 2


@virtual_time
async def test_another_namespace_template_or_length_of_the_name_is_another_question() -> None:
    async with operated() as harness:
        submit(harness, "job-1", "job-22")
        submit(harness, "job-1", namespace="team-b")
        submit(harness, "job-3", strategy="Mirrored", roles={"worker": 1})
        await asyncio.sleep(5.0)
        assert len(asked(harness)) == 4


@virtual_time
async def test_a_refusal_is_found_for_each_job_in_its_own_words_and_nothing_is_made() -> None:
    async with operated() as harness:
        harness.gateway.fail("create", PODS, Invalid("Pod is invalid", status=422, causes=(WORDS,)), times=3)
        submit(harness, "job-1", "job-2", "job-3")
        await asyncio.sleep(5.0)
        assert sorted(asked(harness)) == ["job-1-worker-0", "job-2-worker-0", "job-3-worker-0"]
        messages = [str(dig(harness.gateway.body(JOBS, f"job-{number}"), "status")) for number in (1, 2, 3)]
        assert all(WORDS in message for message in messages)
        assert made(harness) == len(harness.gateway.names(SERVICES)) == 0


@virtual_time
async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    async with operated() as harness:
        harness.gateway.fail("create", PODS, Forbidden("exceeded quota", status=403))
        submit(harness, "job-1", "job-2")
        await asyncio.sleep(5.0)
        assert len(asked(harness)) == 2
        assert made(harness) == 2 * 2


@virtual_time
async def test_an_answer_holds_for_a_minute_and_not_beyond_a_refusal() -> None:
    async with operated() as harness:
        submit(harness, "job-1")
        await asyncio.sleep(KEPT_SECONDS + 1.0)
        submit(harness, "job-2")
        await asyncio.sleep(5.0)
        assert len(asked(harness)) == 2
        harness.gateway.fail("create", PODS, Forbidden("denied", status=403), name="job-3-worker-0")
        submit(harness, "job-3")
        await settled()
        await asyncio.sleep(0.5)
        assert made(harness) == 2 * 2, "the first pod was refused, so no other was tried"
        submit(harness, "job-4")
        await asyncio.sleep(5.0)
        assert len(asked(harness)) == 3
        assert made(harness) == 4 * 2
