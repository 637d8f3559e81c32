"""Whatever goes wrong on the way, the end is the same: the real planner over an API server that misbehaves.

Calls that fail or work and lose their answer, history that is lost, operators that come and go: each pod is created
once, nothing is touched that is not ours, and the job completes. tests/campaigns kill the operator at each of its
writes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from dtj.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES
from support.campaigns.model_cluster import End, ModelCluster
from support.campaigns.model_operator import Operator
from support.campaigns.stale_plans import PARTS
from support.campaigns.stories import create_to_complete
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import virtual_time

ERRORS: tuple[ApiError, ...] = (
    NO_ANSWER,
    Unavailable("internal error", status=500, reason="InternalError"),
    TooManyRequests("slow down", status=429, retry_after=2.0),
    Conflict("the object has been modified", status=409, reason="Conflict"),
)
KINDS = (PODS, SERVICES, CLAIMS, JOBS, EVENTS)
VERBS = ("create", "patch", "delete", "get", "list", "watch")

CALLS_IN_A_MINUTE = 40
"""Of a kind. More is a hot loop: waits between calls double."""


def operated() -> ModelCluster:
    """A cluster with an operator."""
    cluster = ModelCluster()
    cluster.start_operator()
    return cluster


async def end_of(cluster: ModelCluster, story: asyncio.Task[None] | None = None) -> End:
    """How a job ends that runs and completes."""
    await (story or create_to_complete(cluster))
    await cluster.quiet()
    await cluster.close()
    return cluster.end()


@pytest.mark.parametrize("takes_effect", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("error", ERRORS, ids=["no answer", "500", "429", "409"])
@virtual_time
async def test_a_call_that_fails_is_made_good(error: ApiError, takes_effect: bool) -> None:
    usual = await end_of(operated())
    for verb, resource in (
        ("create", PODS),
        ("create", SERVICES),
        ("create", CLAIMS),
        ("patch", JOBS),
        ("delete", PODS),
        ("delete", SERVICES),
    ):
        for times in (1, 3):
            cluster = operated()
            cluster.api.fail(verb, resource, error, times=times, takes_effect=takes_effect)
            assert usual.differences(await end_of(cluster), of=PARTS) == [], f"{verb} {resource.plural}"


@pytest.mark.parametrize("error", ERRORS, ids=["no answer", "500", "429", "409"])
@virtual_time
async def test_while_every_call_fails_each_is_made_ever_more_rarely(error: ApiError) -> None:
    usual = await end_of(operated())
    cluster = operated()
    for verb in VERBS:
        for resource in KINDS:
            cluster.api.fail(verb, resource, error, times=1_000_000)
    story = asyncio.create_task(create_to_complete(cluster))
    await asyncio.sleep(60.0)
    calls = Counter((call.verb, call.plural) for call in cluster.api.calls)
    del calls["list", JOBS.plural]  # kopf's
    assert max(calls.values()) <= CALLS_IN_A_MINUTE, calls
    cluster.api.heal()
    assert usual.differences(await end_of(cluster, story), of=PARTS) == []


@virtual_time
async def test_two_operators_that_run_the_same_job_do_nothing_twice() -> None:
    """A process that was frozen for longer than its lease lasts wakes up as a second leader."""
    cluster = operated()
    second = Operator(cluster.api)
    end = await end_of(cluster)
    await second.kill()
    assert (await end_of(operated())).differences(end, of=PARTS) == []


@pytest.mark.parametrize("seed", range(10))
@virtual_time
async def test_a_bad_day_ends_as_a_good_one(seed: int) -> None:
    rng = random.Random(seed)
    cluster = operated()
    story = asyncio.create_task(create_to_complete(cluster))
    for _ in range(30):
        await asyncio.sleep(rng.expovariate(1.0))
        match rng.randrange(4):
            case 0:
                await cluster.restart_operator()
            case 1:
                cluster.api.release(cluster.plurals, lost=True)
            case _:
                _break_a_call(cluster.api, rng)
    cluster.api.heal()
    end = await end_of(cluster, story)
    assert (await end_of(operated())).differences(end, of=PARTS) == []


def _break_a_call(gateway: FakeGateway, rng: random.Random) -> None:
    resource, verb = rng.choice(KINDS), rng.choice(VERBS)
    error = NO_ANSWER if verb in ("list", "watch") else rng.choice(ERRORS)
    gateway.fail(verb, resource, error, times=rng.randint(1, 4), takes_effect=rng.random() < 0.5)
