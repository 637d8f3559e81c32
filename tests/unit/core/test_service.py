"""The Service of a job: created before the pods, deleted when the job has ended."""

from __future__ import annotations

from dataclasses import replace

from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from support.planned import called
from world import World, running


def test_a_service_deleted_by_hand_is_made_again() -> None:
    world = running()
    world.service = None
    assert "Create Service" in map(called, world.step())


def test_the_service_stays_until_the_last_pod_has_stopped() -> None:
    world = running(roles={"worker": 2})
    world.sees("worker-0", Phase.SUCCEEDED)
    assert world.service is not None, "worker-1 still saves"


def loses_a_peer(**theirs: object) -> World:
    """A replica that will come back alone ends because its peer is gone: who that was is not known yet."""
    world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    assert world.service is not None
    world.service = replace(world.service, **{"owner_uid": "theirs", "selector": {"app": "web"}, **theirs})  # type: ignore[arg-type]
    world.set_pod("worker-0", Phase.FAILED, exit_code=75)
    return world


def test_somebody_elses_service_is_not_changed_while_a_replica_has_lost_its_peer() -> None:
    world = loses_a_peer()
    before = world.service
    world.settle()
    assert world.service == before
    assert world.condition(Condition.PODS_READY).reason == Reason.NAME_TAKEN


def test_a_config_map_that_somebody_elses_service_names_is_not_deleted() -> None:
    world = loses_a_peer(config_map="theirs")
    world.config_maps["theirs"] = {}
    world.settle()
    assert "theirs" in world.config_maps
