"""Whatever goes wrong on the way, the end is the same: the real planner over an API server that misbehaves.

An operator that is killed at any call, calls that fail or work and lose their answer, watches that break: each pod is
created once, nothing is touched that is not ours, and the job completes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.core.planner import plan
from dtj.kube.errors import ApiError, Conflict, TooManyRequests, Unavailable
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES, Resource
from support.engine_rig import Rig
from support.fake_gateway import NO_ANSWER, Call, FakeGateway
from support.virtual_time import virtual_time

pytestmark = pytest.mark.unit

WORKERS = 3
ERRORS: tuple[ApiError, ...] = (
    NO_ANSWER,
    Unavailable("internal error", status=500, reason="InternalError"),
    TooManyRequests("slow down", status=429, retry_after=2.0),
    Conflict("the object has been modified", status=409, reason="Conflict"),
)


class Cluster:
    """A FakeGateway with a job in it, a kubelet, and operators that come and go."""

    def __init__(self) -> None:
        self.gateway = FakeGateway(latency=0.01)
        body = manifest(roles={"worker": WORKERS}, checkpoint={"claimTemplate": {"storage": "1Gi"}})
        self.gateway.put(JOBS, {**body, "metadata": {"name": "digits", "generation": 1}})

    @property
    def job(self) -> Job:
        return Job.from_object(self.gateway.body(JOBS, "digits"))

    def operator(self) -> asyncio.Task[None]:
        """Start an operator."""
        return asyncio.create_task(self._operate())

    async def _operate(self) -> None:
        rig = Rig(self.gateway, lambda observed: plan(observed, rig.now()))
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.engine.run())
            group.create_task(self._watch_jobs(rig))

    async def _watch_jobs(self, rig: Rig) -> None:
        """What kopf does in an operator: tell of each version of the job, sooner or later."""
        while True:
            rig.engine.feed.put(self.gateway.body(JOBS, "digits"))
            await asyncio.sleep(0.05)

    def play_kubelet(self) -> None:
        """All pods become ready; once all are, the first worker completes."""
        pods = {name: self.gateway.body(PODS, name) for name in self.gateway.names(PODS)}
        running = self.job.status.state == "Running"
        for name, pod in pods.items():
            phase = dig(pod, "status", "phase")
            if phase is None:
                self.gateway.put(PODS, {**pod, "status": _READY})
            elif running and phase == "Running" and name == "digits-worker-0":
                self.gateway.put(PODS, {**pod, "status": _COMPLETED})

    async def run_to_the_end(self, operator: asyncio.Task[None], *, seconds: float = 600.0) -> None:
        """Let an operator work until the job has ended, and stop it."""
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            assert not operator.done(), "nothing may end an operator"
            self.play_kubelet()
            if self.job.status.terminal:
                break
        await asyncio.sleep(5.0)
        operator.cancel()

    def check(self) -> None:
        """The one end that every story must have."""
        assert self.job.status.state == "Succeeded", self.job.status
        assert self.job.status.attempt == 1
        assert self.gateway.names(PODS) == ["digits-worker-0"], "the one that completed; the others were stopped"
        assert self.gateway.names(SERVICES) == ["digits"]
        assert self.gateway.names(CLAIMS) == ["digits-checkpoint"]
        made = Counter(
            text(dig(line.body, "metadata", "name")) for line in self.gateway.history(PODS) if line.type == "ADDED"
        )
        assert made == {f"digits-worker-{index}": 1 for index in range(WORKERS)}, "each pod once"


_READY: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_COMPLETED: JsonObject = {
    "phase": "Succeeded",
    "containerStatuses": [
        {"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}}}
    ],
}


def is_work(call: Call) -> bool:
    return call.verb in ("create", "patch", "delete") and call.plural != EVENTS.plural


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
