"""Whatever goes wrong on the way, the end is the same: the real planner over an API server that misbehaves.

An operator that is killed at any call, calls that fail or work and lose their answer, watches that break: each pod is
created once, nothing is touched that is not ours, and the job completes.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from dtj.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES, Resource
from support.chaos_cluster import WORKERS, Cluster, is_work
from support.fake_gateway import NO_ANSWER, Call, FakeGateway
from support.virtual_time import virtual_time

pytestmark = pytest.mark.unit

ERRORS: tuple[ApiError, ...] = (
    NO_ANSWER,
    Unavailable("internal error", status=500, reason="InternalError"),
    TooManyRequests("slow down", status=429, retry_after=2.0),
    Conflict("the object has been modified", status=409, reason="Conflict"),
)


async def undisturbed() -> list[Call]:
    """The calls of a run in which nothing goes wrong."""
    cluster = Cluster()
    await cluster.run_to_the_end(cluster.operator())
    cluster.check()
    return [call for call in cluster.gateway.calls if is_work(call)]


@virtual_time
async def test_an_undisturbed_job_completes() -> None:
    calls = await undisturbed()
    assert len([call for call in calls if not call.dry_run]) <= 2 * WORKERS + 7


@pytest.mark.parametrize("answered", [True, False], ids=["after the answer", "before the answer"])
@virtual_time
async def test_an_operator_that_is_killed_at_any_call_is_continued_by_the_next(answered: bool) -> None:
    for number in range(len(await undisturbed())):
        cluster = Cluster()
        operator = cluster.operator()
        while sum(map(is_work, cluster.gateway.calls)) <= number:
            await asyncio.sleep(0.001)
            cluster.play_kubelet()
        if answered:
            await asyncio.sleep(0.0101)
        operator.cancel()
        await asyncio.sleep(1.0)
        await cluster.run_to_the_end(cluster.operator())
        cluster.check()


@pytest.mark.parametrize("takes_effect", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("error", ERRORS, ids=["no answer", "500", "429", "409"])
@virtual_time
async def test_a_call_that_fails_is_made_good(error: ApiError, takes_effect: bool) -> None:
    for verb, resource in (
        ("create", PODS),
        ("create", SERVICES),
        ("create", CLAIMS),
        ("patch", JOBS),
        ("delete", PODS),
        ("delete", SERVICES),
    ):
        for times in (1, 3):
            cluster = Cluster()
            cluster.gateway.fail(verb, resource, error, times=times, takes_effect=takes_effect)
            await cluster.run_to_the_end(cluster.operator())
            cluster.check()


@pytest.mark.parametrize("seed", range(10))
@virtual_time
async def test_a_bad_day_ends_as_a_good_one(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster()
    operator = cluster.operator()
    for _ in range(30):
        await asyncio.sleep(rng.expovariate(1.0))
        cluster.play_kubelet()
        match rng.randrange(5):
            case 0:
                operator.cancel()
                operator = cluster.operator()
            case 1:
                cluster.gateway.expire_watches()
            case 2:
                cluster.gateway.break_watches(NO_ANSWER)
            case _:
                _break_a_call(cluster.gateway, rng)
    cluster.gateway.heal()
    await cluster.run_to_the_end(operator)
    cluster.check()


def _break_a_call(gateway: FakeGateway, rng: random.Random) -> None:
    resource: Resource = rng.choice((PODS, SERVICES, CLAIMS, JOBS, EVENTS))
    verb = rng.choice(("create", "patch", "delete", "get", "list", "watch"))
    error = NO_ANSWER if verb in ("list", "watch") else rng.choice(ERRORS)
    gateway.fail(verb, resource, error, times=rng.randint(1, 4), takes_effect=rng.random() < 0.5)
