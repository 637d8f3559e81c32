"""The Service of a job, and the ConfigMap with the addresses of a large one: there before the pods, gone at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.names import Condition, Reason
from dtj.core.actions import Create, Kind
from dtj.core.observed import Blocker, Phase
from support.elastic_world import trains
from support.planned import called, does
from world import World, running


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


MANY = 60


def large(**arguments: object) -> World:
    return running(roles={"worker": MANY}, **arguments)  # type: ignore[arg-type]


def test_another_number_of_replicas_gets_one_of_its_own_and_the_old_one_goes() -> None:
    world = large(elastic={"minReplicas": 1, "maxReplicas": 100})
    (before,) = world.config_maps
    world.becomes(job(roles={"worker": MANY + 1}, elastic={"minReplicas": 1, "maxReplicas": 100}))
    world.settle_deletions()
    (after,) = world.config_maps
    assert after != before
    assert world.service is not None
    assert world.service.config_map == after
    order = [*map(called, world.history)]
    assert order.index("Create ConfigMap", order.index("Create Service")) < order.index("Update Service")


def test_the_old_one_stays_while_a_pod_that_has_not_started_refers_to_it() -> None:
    world = trains(job(roles={"worker": MANY}, elastic={"minReplicas": 1, "maxReplicas": 100}))
    (before,) = world.config_maps
    world.loses("worker-5")
    world.settle_deletions()
    assert world.pods["digits-worker-5-r1"].phase is Phase.PENDING
    world.becomes(job(roles={"worker": MANY + 1}, elastic={"minReplicas": 1, "maxReplicas": 100}))
    world.settle_deletions()
    assert before in world.config_maps
    assert world.service is not None
    assert world.service.config_map in {*world.config_maps} - {before}


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_it_goes_with_the_end_of_the_job_before_the_service(phase: Phase) -> None:
    world = large(runPolicy={"backoffLimit": 0})
    world.run_all()
    world.set_pod("worker-0", phase)
    world.settle_deletions()
    assert world.job.status.terminal
    assert (world.config_maps, world.service) == ({}, None)
    order = [*map(called, world.history)]
    assert order.index("Delete ConfigMap") < order.index("Delete Service")


def test_a_suspended_job_has_none_and_gets_it_again() -> None:
    world = large()
    before = dict(world.config_maps)
    world.becomes(job(roles={"worker": MANY}, runPolicy={"suspend": True}))
    world.settle_deletions()
    assert world.job.status.is_true(Condition.SUSPENDED)
    assert world.config_maps == {}
    world.becomes(job(roles={"worker": MANY}))
    assert world.config_maps == before


def test_one_that_somebody_deleted_is_created_again_when_a_pod_waits_for_it() -> None:
    world = large()
    (name,) = world.config_maps
    world.config_maps.clear()
    made = [action for action in world.step() if does(action, Create, Kind.CONFIG_MAP)]
    assert not made, "nobody needs it while all pods have started"
    blocker = Blocker(Reason.CONTAINER_CONFIG_ERROR, f'configmap "{name}" not found')
    world.pods["digits-worker-3"] = replace(world.pods["digits-worker-3"], phase=Phase.PENDING, blocker=blocker)
    world.step()
    assert list(world.config_maps) == [name]


OF_OTHERS = (
    "settings",
    "digits-cluster-",
    "digits-cluster-0123456789-x",
    "digits-code-0123456789",
    "other-cluster-0123456789",
)


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_config_map_of_another_name_that_the_service_names_stays_and_the_service_names_ours_again(name: str) -> None:
    world = large()
    assert world.service is not None
    ours = dict(world.config_maps)
    world.config_maps[name] = {}
    world.service = replace(world.service, config_map=name)
    world.settle()
    assert world.service.config_map in ours
    world.service = replace(world.service, config_map=name)
    world.run_all()
    world.set_pod("worker-0", Phase.SUCCEEDED)
    world.settle_deletions()
    assert world.service is None
    assert world.config_maps == {name: {}}
