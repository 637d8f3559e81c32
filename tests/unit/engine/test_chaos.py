"""Whatever goes wrong on the way, the end is the same: the real planner over an API server that misbehaves.

Calls that fail or work and lose their answer, watches that break, operators that come and go: each pod is created once,
nothing is touched that is not ours, and the job completes. tests/campaigns kill the operator at each of its writes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from dtj.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES
from support.chaos_cluster import Cluster
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


@pytest.mark.parametrize("error", ERRORS, ids=["no answer", "500", "429", "409"])
@virtual_time
async def test_while_every_call_fails_each_is_made_ever_more_rarely(error: ApiError) -> None:
    cluster = Cluster()
    for verb in VERBS:
        for resource in KINDS:
            cluster.gateway.fail(verb, resource, error, times=1_000_000)
    operator = cluster.operator()
    await asyncio.sleep(60.0)
    calls = Counter((call.verb, call.plural) for call in cluster.gateway.calls)
    assert max(calls.values()) <= CALLS_IN_A_MINUTE, calls
    cluster.gateway.heal()
    await cluster.run_to_the_end(operator)
    cluster.check()


@virtual_time
async def test_two_operators_that_run_the_same_job_do_nothing_twice() -> None:
    """A process that was frozen for longer than its lease lasts wakes up as a second leader."""
    cluster = Cluster()
    second = cluster.operator()
    await cluster.run_to_the_end(cluster.operator())
    second.cancel()
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
    resource, verb = rng.choice(KINDS), rng.choice(VERBS)
    error = NO_ANSWER if verb in ("list", "watch") else rng.choice(ERRORS)
    gateway.fail(verb, resource, error, times=rng.randint(1, 4), takes_effect=rng.random() < 0.5)
