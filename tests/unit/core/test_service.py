"""The Service of a job: created before the pods, deleted when the job has ended."""

from __future__ import annotations

from dataclasses import replace

from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from support.planned import called
from world import running


def test_a_service_deleted_by_hand_is_made_again() -> None:
    world = running()
    world.service = None
    assert "Create Service" in map(called, world.step())


def test_the_service_stays_until_the_last_pod_has_stopped() -> None:
    world = running(roles={"worker": 2})
    world.sees("worker-0", Phase.SUCCEEDED)
    assert world.service is not None, "worker-1 still saves"


def test_of_somebody_elses_service_nothing_is_changed_while_a_replica_that_lost_its_peer_waits_for_the_cause() -> None:
    world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    assert world.service is not None
    theirs = replace(world.service, owner_uid="theirs", selector={"app": "web"}, config_map="theirs")
    world.service, world.config_maps["theirs"] = theirs, {}
    world.sees("worker-0", Phase.FAILED, exit_code=75)
    assert world.service == theirs
    assert "theirs" in world.config_maps
    assert world.condition(Condition.PODS_READY).reason == Reason.NAME_TAKEN
