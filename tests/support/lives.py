"""A job at every point of its life, as the planner writes it: what tools that wait are tested with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from builders import job, manifest, stored
from dtj.api.json import JsonObject, object_at
from dtj.core.observed import Phase
from support.gang_worlds import KUEUE, admit
from support.gang_worlds import world as queued_world
from world import World

EXPECTED = {
    "nobody has seen it": "InProgress",
    "its pods are created": "InProgress",
    "one of two pods is ready": "InProgress",
    "all pods are ready": "Current",
    "its training does not progress": "Current",
    "it was changed, and the operator has not seen it": "InProgress",
    "a pod was lost": "InProgress",
    "its second attempt starts": "InProgress",
    "its second attempt runs": "Current",
    "its outcome is recorded, and pods stop": "InProgress",
    "it is complete": "Current",
    "it is complete and its pods are deleted": "Current",
    "it was changed after its end": "Current",
    "it will fail, and pods stop": "InProgress",
    "it has failed": "Failed",
    "it is being suspended": "InProgress",
    "it is suspended": "InProgress",
    "it is resumed": "InProgress",
    "it waits in a queue": "InProgress",
    "it was admitted, and starts": "InProgress",
    "it is invalid": "InProgress",
    "it is being deleted": "Terminating",
}
"""What kstatus makes of a job at each point."""


def points() -> dict[str, JsonObject]:
    """The object at each point of :data:`EXPECTED`, by its name."""
    lives = (_succeeds, _fails, _restarts, _is_suspended, _is_queued, _others)
    return {point: body for life in lives for point, body in life()}


def _body(world: World) -> JsonObject:
    """The job as an API server has it."""
    found = world.job
    body = stored({**manifest(found.name), "spec": found.raw_spec}, generation=found.generation)
    return {**body, "status": found.status.to_object()}


def _succeeds() -> Iterator[tuple[str, JsonObject]]:
    yield "nobody has seen it", {**stored(manifest()), "status": {"observedGeneration": -1}}
    world = World(job(runPolicy={"stallTimeoutSeconds": 60})).settle()
    yield "its pods are created", _body(world)
    world.set_pod("worker-0", Phase.RUNNING)
    world.wait(60)
    yield "one of two pods is ready", _body(world)
    world.all_run()
    yield "all pods are ready", _body(world)
    world.report("worker-0", step=1)
    for _ in range(4):
        world.advance(30)
        world.hears("worker-0", step=1)
    yield "its training does not progress", _body(world)
    world.job = replace(world.job, generation=2)
    yield "it was changed, and the operator has not seen it", _body(world)
    world.job = replace(world.job, generation=1)
    world.sees("worker-0", Phase.SUCCEEDED, exit_code=0)
    yield "its outcome is recorded, and pods stop", _body(world)
    world.finish_deletions()
    world.settle()
    yield "it is complete", _body(world)
    world.pods.clear()
    world.settle()
    yield "it is complete and its pods are deleted", _body(world)
    body = _body(world)
    world.becomes(job(runPolicy={"ttlSecondsAfterFinished": 600}))
    yield "it was changed after its end", _body(world)
    metadata = object_at(body, "metadata")
    yield "it is being deleted", {**body, "metadata": {**metadata, "deletionTimestamp": "2026-01-02T04:00:00Z"}}


def _fails() -> Iterator[tuple[str, JsonObject]]:
    world = World(job(runPolicy={"backoffLimit": 0})).start()
    world.sees("worker-0", Phase.FAILED, exit_code=1)
    yield "it will fail, and pods stop", _body(world)
    world.finish_deletions()
    world.settle()
    yield "it has failed", _body(world)


def _restarts() -> Iterator[tuple[str, JsonObject]]:
    world = World(job()).start()
    world.sees("worker-1", Phase.FAILED, exit_code=1)
    yield "a pod was lost", _body(world)
    world.finish_deletions()
    for _ in range(10):
        world.wait(30)
        world.finish_deletions()
    yield "its second attempt starts", _body(world)
    world.all_run()
    yield "its second attempt runs", _body(world)


def _is_suspended() -> Iterator[tuple[str, JsonObject]]:
    world = World(job()).start()
    world.becomes(job(runPolicy={"suspend": True}))
    yield "it is being suspended", _body(world)
    world.finish_deletions()
    world.settle()
    yield "it is suspended", _body(world)
    world.becomes(job(runPolicy={"suspend": False}))
    yield "it is resumed", _body(world)


def _is_queued() -> Iterator[tuple[str, JsonObject]]:
    world = queued_world(KUEUE, gang="Kueue", queue="team-a")
    world.settle()
    yield "it waits in a queue", _body(world)
    admit(world)
    world.settle()
    yield "it was admitted, and starts", _body(world)


def _others() -> Iterator[tuple[str, JsonObject]]:
    world = World(job(accelerator={"profile": "unheard-of"})).settle()
    yield "it is invalid", _body(world)
