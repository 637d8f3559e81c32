"""Operators that are killed at every call of a story, before and after its answer, come to the same end with the same
counters: the real planner and engine over an API server in memory. (Creation to completion is in test_engine_chaos.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from builders import manifest
from dtj.api.json import JsonObject, dig, text
from dtj.api.spec import Gang
from dtj.convert.object_records import resource_of
from dtj.core.gang.discovery import APIS
from dtj.core.status import format_time
from dtj.kube.gateway import JOBS, PODS, SERVICES, Resource
from support.chaos_cluster import Cluster, is_work
from support.engine_harness import EPOCH
from support.virtual_time import loop_time, virtual_time

pytestmark = pytest.mark.unit

WORKLOADS = resource_of(next(api for api in APIS if api.gang is Gang.KUEUE))
LOCAL_QUEUES = Resource(WORKLOADS.api_version, "LocalQueue", "localqueues")

Move = Callable[["StoryCluster", str, JsonObject], None]


def nothing(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
    """What happens to a running pod while nothing happens."""


@dataclass(frozen=True)
class Story:
    """A job, what happens to its running pods while it is Running, and what its owner does."""

    spec: JsonObject
    while_running: Move = nothing
    owner: Callable[[StoryCluster], None] = lambda _: None
    before: Callable[[StoryCluster], None] = lambda _: None
    """What is in the cluster before the operator starts."""


class StoryCluster(Cluster):
    """Its kubelet and the owner of its job play a story."""

    def __init__(self, story: Story) -> None:
        super().__init__()
        self.story = story
        body = self.gateway.body(JOBS, "digits")
        self.gateway.put(JOBS, {**body, "spec": manifest(**story.spec)["spec"]})  # type: ignore[arg-type]
        story.before(self)

    def play_kubelet(self) -> None:
        running = self.job.status.state == "Running"
        for name in self.gateway.names(PODS):
            pod = self.gateway.body(PODS, name)
            phase = dig(pod, "status", "phase")
            if phase is None:
                ready: JsonObject = {"type": "Ready", "status": "True"}
                self.gateway.put(PODS, {**pod, "status": {"phase": "Running", "conditions": [ready]}})
            elif running and phase == "Running":
                self.story.while_running(self, name, pod)
        self.story.owner(self)

    def exit(self, pod: JsonObject, code: int) -> None:
        """A pod's container ends now."""
        finished = format_time(EPOCH.fromtimestamp(EPOCH.timestamp() + loop_time(), EPOCH.tzinfo))
        terminated: JsonObject = {"exitCode": code, "finishedAt": finished}
        status: JsonObject = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "trainer", "state": {"terminated": terminated}}],
        }
        self.gateway.put(PODS, {**pod, "status": status})

    def edit(self, **spec: object) -> None:
        """The owner applies another manifest."""
        body = self.gateway.body(JOBS, "digits")
        wanted = manifest(**{**self.story.spec, **spec})["spec"]  # type: ignore[arg-type]
        if body["spec"] == wanted:
            return
        generation = dig(body, "metadata", "generation")
        assert isinstance(body["metadata"], dict)
        assert isinstance(generation, int)
        metadata: JsonObject = {**body["metadata"], "generation": generation + 1}
        self.gateway.put(JOBS, {**body, "metadata": metadata, "spec": wanted})

    def outcome(self) -> tuple[object, ...]:
        """What must be the same, whoever died on the way."""
        status = self.job.status
        created = [line for line in self.gateway.history(PODS) if line.type == "ADDED"]
        return (
            status.state,
            status.reason,
            status.queue,
            status.attempt,
            status.restarts,
            status.replica_statuses,
            self.gateway.names(PODS),
            self.gateway.names(SERVICES),
            sorted(text(dig(line.body, "metadata", "name")) for line in created),
        )


def first_worker_completes_in_attempt(attempt: int) -> Move:
    def move(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
        if cluster.job.status.attempt == attempt and "-worker-0" in name:
            cluster.exit(pod, 0)

    return move


def a_worker_fails_once(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
    if name == "digits-worker-1":
        cluster.exit(pod, 3)
    else:
        first_worker_completes_in_attempt(2)(cluster, name, pod)


def the_chief_always_fails(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
    if "-chief-" in name:
        cluster.exit(pod, 3)


def servers_lose_a_worker(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
    if name == "digits-worker-1":
        cluster.exit(pod, 1)
    elif name == "digits-chief-0" and "digits-worker-1-r1" in cluster.gateway.names(PODS):
        cluster.exit(pod, 0)


def servers_lose_the_coordinator(cluster: StoryCluster, name: str, pod: JsonObject) -> None:
    if "-chief-" in name:
        cluster.exit(pod, 137 if name == "digits-chief-0" else 0)


def suspends_once(cluster: StoryCluster) -> None:
    status = cluster.job.status
    if status.state == "Running" and status.attempt == 1:
        cluster.edit(runPolicy={"suspend": True})
    elif status.state == "Suspended" and not cluster.gateway.names(PODS) and not cluster.gateway.names(SERVICES):
        cluster.edit(runPolicy={"suspend": False})


def scales_once(cluster: StoryCluster) -> None:
    if cluster.job.status.state == "Running" and cluster.job.status.attempt == 1:
        cluster.edit(roles={"worker": 3})


def there_is_a_default_queue(cluster: StoryCluster) -> None:
    cluster.gateway.installed.add(WORKLOADS)
    cluster.gateway.put(LOCAL_QUEUES, {"metadata": {"name": "default"}})


def kueue_admits(cluster: StoryCluster) -> None:
    for name in cluster.gateway.names(WORKLOADS):
        workload = cluster.gateway.body(WORKLOADS, name)
        assert dig(workload, "spec", "queueName") == "default"
        if dig(workload, "status", "admission") is not None or cluster.job.status.terminal:
            continue
        conditions: list[JsonObject] = [
            {"type": kind, "status": "True", "reason": "Because", "message": "", "lastTransitionTime": "then"}
            for kind in ("QuotaReserved", "Admitted")
        ]
        admission: JsonObject = {"clusterQueue": "all", "podSetAssignments": [{"name": "worker", "count": 2}]}
        cluster.gateway.put(WORKLOADS, {**workload, "status": {"conditions": [*conditions], "admission": admission}})


STORIES = {
    "a worker fails and all start again": Story({"roles": {"worker": 2}}, a_worker_fails_once),
    "the chief fails for good": Story(
        {"roles": {"chief": 1, "worker": 1}, "runPolicy": {"backoffLimit": 1}}, the_chief_always_fails
    ),
    "a worker of parameter servers fails": Story(
        {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 2, "ps": 1}}, servers_lose_a_worker
    ),
    "the coordinator of parameter servers fails": Story(
        {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 1, "ps": 1}}, servers_lose_the_coordinator
    ),
    "suspended and resumed": Story({"roles": {"worker": 2}}, first_worker_completes_in_attempt(2), suspends_once),
    "scaled": Story(
        {"roles": {"worker": 2}, "elastic": {"maxReplicas": 3}}, first_worker_completes_in_attempt(2), scales_once
    ),
    "in the default queue of Kueue": Story(
        {"roles": {"worker": 2}}, first_worker_completes_in_attempt(1), kueue_admits, there_is_a_default_queue
    ),
}


async def undisturbed(story: Story) -> StoryCluster:
    cluster = StoryCluster(story)
    await cluster.run_to_the_end(cluster.operator())
    assert cluster.job.status.terminal, cluster.job.status
    return cluster


async def killed(story: Story, *, at: int, answered: bool) -> StoryCluster:
    """The operator is killed at this call, and another one goes on."""
    cluster = StoryCluster(story)
    operator = cluster.operator()
    ticks = 0
    while sum(map(is_work, cluster.gateway.calls)) <= at:
        await asyncio.sleep(0.001)
        ticks += 1
        if ticks % 1000 == 0:  # once a second, as in the undisturbed run
            cluster.play_kubelet()
    if answered:
        await asyncio.sleep(0.0101)
    operator.cancel()
    await asyncio.sleep(1.0)
    await cluster.run_to_the_end(cluster.operator())
    return cluster


def plans(calls: int) -> Iterator[tuple[int, bool]]:
    return ((call, answered) for call in range(calls) for answered in (True, False))


@pytest.mark.parametrize("title", STORIES)
@virtual_time
async def test_an_operator_that_is_killed_at_any_call_is_continued_to_the_same_end(title: str) -> None:
    """A plan can be run alone: ``await killed(STORIES[title], at=call, answered=answered)``."""
    story = STORIES[title]
    alive = await undisturbed(story)
    calls = sum(map(is_work, alive.gateway.calls))
    for call, answered in plans(calls):
        end = (await killed(story, at=call, answered=answered)).outcome()
        assert end == alive.outcome(), f"killed at call {call}, {'after' if answered else 'before'} its answer"
    print(f"{title}: {2 * calls} plans")
