"""Which pods are created, and when."""

from __future__ import annotations

import json
import tracemalloc

from builders import NOW, job, seen
from dtj.api.names import Reason
from dtj.core.actions import CreatePod, Emit
from dtj.core.observed import CreationRefusal, TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import Platform
from world import World, running


def test_a_plan_of_many_pods_holds_none_of_their_manifests() -> None:
    platform = Platform(inline_addresses=None)
    large = seen(job(roles={"worker": 2000}), platform=platform, verdict=TemplateVerdict(1, NOW))
    tracemalloc.start()
    try:
        made = [action for action in plan(large, NOW) if isinstance(action, CreatePod)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one = len(json.dumps(made[0].render()))
    assert one > 50_000, "each manifest holds the addresses of all peers"
    assert held < 100 * one


def test_exactly_the_missing_pods_are_created() -> None:
    world = World(job(roles={"worker": 4})).settle()
    world.remove("worker-1")
    world.remove("worker-3")
    created = [action for action in world.step() if isinstance(action, CreatePod)]
    assert [action.name for action in created] == ["digits-worker-1", "digits-worker-3"]


def test_a_role_without_replicas_takes_no_part() -> None:
    world = running(roles={"worker": 2, "evaluator": 0})
    assert "evaluator" not in world.job.status.replica_statuses
    assert len(world.pods) == 2


def test_a_refused_creation_is_shown_once_and_tried_again() -> None:
    world = World(job())
    world.step()
    world.refusal = CreationRefusal("digits-worker-0", "Forbidden", "exceeded quota: pods", NOW)
    first = world.step()
    assert [type(a) for a in first if isinstance(a, Emit)] == [Emit]
    assert world.job.status.reason == Reason.POD_CREATION_FAILED
    world.pods.clear()
    assert not any(isinstance(action, Emit) for action in world.step())
