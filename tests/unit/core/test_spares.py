"""Spares of elastic jobs, which wait and take the place of a lost or slow worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.core.actions import DeletePod, PatchStatus, RequeueAfter, TellPod
from dtj.core.observed import Phase, Straggler
from support.elastic_world import ElasticWorld, elastic, trains


def trains_with_spares(made: Job) -> ElasticWorld:
    world = trains(made)
    world.import_all()
    return world


def test_a_spare_is_a_pod_more_that_waits_and_is_counted_nowhere() -> None:
    world = trains_with_spares(elastic(2, chief=1, spares=1))
    assert set(world.uids()) == {"digits-chief-0", "digits-worker-0", "digits-worker-1", "digits-worker-2"}
    assert world.members() == {"chief": "0", "worker": "0-1"}
    counts = world.job.status.replica_statuses["worker"]
    assert (world.job.status.ready, counts.desired, counts.active, counts.ready) == ("3/3", 2, 2, 2)
    assert world.is_true(Condition.PODS_READY)
    assert world.condition(Condition.PODS_READY).message == "1 of 1 spares are ready"
    assert not world.taken(TellPod)


def test_a_job_runs_while_its_spare_finds_no_node() -> None:
    world = ElasticWorld(elastic(2, spares=1)).settle()
    for worker in ("worker-0", "worker-1"):
        world.set_pod(worker, Phase.RUNNING)
    world.settle()
    assert world.job.status.state == "Running"
    assert world.condition(Condition.PODS_READY).message.startswith("0 of 1 spares are ready")


@pytest.mark.parametrize("lost", ["worker-0", "worker-1"])
def test_a_spare_takes_the_place_of_a_lost_worker_at_once_whose_next_pod_is_the_spare_then(lost: str) -> None:
    world = trains_with_spares(elastic(2, least=2, spares=1))
    before, seen = world.uids(), len(world.history)
    world.loses(lost)
    rest = {"worker-0": "1-2", "worker-1": "0,2"}[lost]
    assert world.job.status.world is not None
    assert world.job.status.world.members == {"worker": rest}
    writes = [each for each in world.history[seen:] if isinstance(each, PatchStatus) and each.status.world is not None]
    assert writes[0].status.restarts.total == 1  # the loss and who takes the place are one write
    world.settle_deletions()
    assert world.members() == {"worker": rest}
    assert world.is_true(Condition.PODS_READY)
    world.all_join()
    world.wait(600)
    assert world.members() == {"worker": rest}
    assert set(world.uids()) == {*(set(before) - {f"digits-{lost}"}), f"digits-{lost}-r1"}
    world.loses("worker-2")
    world.settle_deletions()
    assert world.members() == {"worker": "0-1"}
    assert world.job.status.attempt == 1


def test_of_two_lost_workers_a_single_spare_replaces_one_and_the_other_is_waited_for() -> None:
    world = trains_with_spares(elastic(3, spares=1))
    world.loses("worker-0")
    world.loses("worker-1")
    world.settle_deletions()
    assert world.members() == {"worker": "1-3"}
    assert not world.is_true(Condition.PODS_READY)
    world.wait(31)
    assert world.members() == {"worker": "2-3"}
    world.all_join()
    assert world.members() == {"worker": "0,2-3"}
    world.wait(60)
    assert world.condition(Condition.PODS_READY).message == "1 of 1 spares are ready"


def test_a_spare_that_has_not_imported_yet_takes_no_place() -> None:
    world = trains(elastic(2, spares=1))
    world.loses("worker-1")
    world.settle_deletions()
    assert world.members() == {"worker": "0-1"}
    world.import_all()
    assert world.members() == {"worker": "0,2"}


@pytest.mark.parametrize("launched", [True, False])
def test_the_loss_of_a_spare_concerns_nobody_else(launched: bool) -> None:
    world = trains(elastic(2, spares=1), launched=launched)
    before = world.uids()
    world.loses("worker-2")
    world.settle_deletions()
    world.all_run()
    assert not world.taken(TellPod)
    assert (world.job.status.attempt, world.members()) == (1, {"worker": "0-1"})
    assert set(world.uids()) == {"digits-worker-0", "digits-worker-1", "digits-worker-2-r1"}
    assert {name: uid for name, uid in world.uids().items() if name in before} == {
        name: before[name] for name in ("digits-worker-0", "digits-worker-1")
    }


def test_a_spare_that_became_a_member_and_vanishes_without_a_trace_is_missed() -> None:
    world = trains_with_spares(elastic(2, spares=1))
    world.loses("worker-0")
    world.settle_deletions()
    world.all_join()
    del world.pods["digits-worker-2"]
    world.settle()
    assert world.members() == {"worker": "0-1"}
    assert "digits-worker-2-r1" in world.uids()


def test_a_spare_takes_the_place_of_a_worker_whose_node_is_silent_which_is_the_spare_if_it_comes_back() -> None:
    world = trains_with_spares(elastic(2, least=2, spares=1))
    before, name = world.uids(), "digits-worker-1"
    world.pods[name] = replace(world.pods[name], ready=False, silent=True)
    world.settle()
    assert world.members() == {"worker": "0,2"}
    assert world.job.status.restarts.total == 0
    world.pods[name] = replace(world.pods[name], ready=True, silent=False)
    world.import_all()
    world.wait(60)
    assert world.members() == {"worker": "0,2"}
    assert world.condition(Condition.PODS_READY).message == "1 of 1 spares are ready"
    assert world.uids() == before


def test_a_worker_that_is_not_ready_for_a_while_gives_its_place_to_a_spare_though_no_worker_less_would_do() -> None:
    world = trains_with_spares(elastic(2, least=2, spares=1))
    world.pods["digits-worker-1"] = replace(world.pods["digits-worker-1"], ready=False)
    world.settle()
    world.wait(29)
    assert world.members() == {"worker": "0-1"}
    world.wait(2)
    assert world.members() == {"worker": "0,2"}


def test_a_job_that_is_scaled_up_takes_its_spare_first_and_one_that_is_scaled_down_keeps_one() -> None:
    world = trains_with_spares(elastic(2, spares=1))
    before = world.uids()
    world.becomes(elastic(3, spares=1))
    assert world.members() == {"worker": "0-2"}
    assert set(world.uids()) == {*before, "digits-worker-3"}
    world.all_join()
    world.becomes(elastic(1, spares=1))
    world.settle_deletions()
    assert world.members() == {"worker": "0"}
    assert world.uids() == {name: before[name] for name in ("digits-worker-0", "digits-worker-1")}


@pytest.mark.parametrize("sick", ["worker-0", "worker-1", "worker-2"])
def test_of_a_job_that_is_scaled_down_the_worker_that_is_not_ready_leaves_first(sick: str) -> None:
    world = trains_with_spares(elastic(3, least=1, spares=1))
    name = f"digits-{sick}"
    world.pods[name] = replace(world.pods[name], ready=False)
    world.settle()
    world.becomes(elastic(2, least=1, spares=1))
    world.settle_deletions()
    well = {"worker-0": "1-2", "worker-1": "0,2", "worker-2": "0-1"}[sick]
    assert world.members() == {"worker": well}


@pytest.mark.parametrize("policy", ["None", "Running"])
def test_a_job_ends_with_its_members_and_stops_its_spares(policy: str) -> None:
    run_policy = {"successPolicy": "AllWorkers", "cleanPodPolicy": policy}
    world = trains_with_spares(elastic(2, spares=1, runPolicy=run_policy))
    world.loses("worker-0")
    world.settle_deletions()
    world.all_join()
    world.sees("worker-1", Phase.SUCCEEDED)
    world.loses("worker-0-r1")  # a spare, which nobody waits for
    world.sees("worker-2", Phase.SUCCEEDED)
    world.settle_deletions()
    assert world.job.status.is_true(Condition.COMPLETE)
    assert world.job.status.attempt == 1
    running = [pod.name for pod in world.pods.values() if not pod.main_container_ended]
    assert running == []


def test_a_spare_is_stopped_when_the_job_is_suspended_and_waits_again_when_it_is_resumed() -> None:
    world = trains_with_spares(elastic(2, spares=1))
    world.becomes(elastic(2, spares=1, runPolicy={"suspend": True}))
    world.settle_deletions()
    assert world.uids() == {}
    world.becomes(elastic(2, spares=1))
    world.all_run()
    assert world.members() == {"worker": "0-1"}
    assert len(world.uids()) == 3


def with_a_straggler(made: Job, name: str = "worker-1") -> ElasticWorld:
    world = trains_with_spares(made)
    world.stragglers = (Straggler(name, 2.5),)
    return world.settle()


@pytest.mark.parametrize("slow", ["worker-0", "worker-1"])
def test_a_slow_worker_is_exchanged_for_a_spare_and_its_next_pod_is_the_spare_then(slow: str) -> None:
    world = trains_with_spares(elastic(2, spares=1, straggler="Replace"))
    before, seen = world.uids(), len(world.history)
    world.stragglers = (Straggler(slow, 2.5),)
    world.settle_deletions()
    steps = [type(each) for each in world.history[seen:] if isinstance(each, PatchStatus | TellPod | DeletePod)]
    assert steps[:4] == [PatchStatus, TellPod, TellPod, DeletePod]
    assert world.members() == {"worker": {"worker-0": "1-2", "worker-1": "0,2"}[slow]}
    assert set(world.uids()) == {*(set(before) - {f"digits-{slow}"}), f"digits-{slow}-r1"}
    world.all_join()
    assert world.condition(Condition.PODS_READY).status == "True"
    assert (world.job.status.attempt, world.job.status.restarts.total) == (1, 0)


def test_slow_workers_are_exchanged_at_most_once_in_10_minutes_whichever_operator_looks() -> None:
    world = with_a_straggler(elastic(2, spares=1, straggler="Replace"))
    world.settle_deletions()
    world.all_join()
    world.stragglers = (Straggler("worker-2", 2.5),)
    world.wait(590)
    assert world.members() == {"worker": "0,2"}
    (wait,) = (each for each in world.planned() if isinstance(each, RequeueAfter))
    assert 0 < wait.seconds <= 10
    world.wait(wait.seconds)
    assert world.members() == {"worker": "0-1"}


def test_a_slow_worker_stays_without_a_spare_that_waits_and_unless_the_job_asks_for_more() -> None:
    silent = trains(elastic(2, spares=1, straggler="Replace"))
    silent.stragglers = (Straggler("worker-1", 2.5),)
    silent.settle()
    for world in (silent, with_a_straggler(elastic(2, spares=1))):
        assert world.members() == {"worker": "0-1"}
        assert not world.taken(DeletePod)
    silent.import_all()
    assert silent.job.status.world is not None
    assert silent.job.status.world.members == {"worker": "0,2"}


def test_a_slow_chief_stays() -> None:
    world = with_a_straggler(elastic(2, chief=1, spares=1, straggler="Replace"), "chief-0")
    assert world.members() == {"chief": "0", "worker": "0-1"}


def test_a_spare_that_fails_again_and_again_uses_up_no_limit_and_is_not_started_in_a_tight_loop() -> None:
    world = trains(elastic(2, spares=1, runPolicy={"backoffLimit": 1, "disruptionLimit": 0}))
    for number in range(3):
        world.sees(f"worker-2-r{number}" if number else "worker-2", Phase.FAILED, exit_code=1)
        world.settle_deletions()
        world.wait(58)
        assert f"digits-worker-2-r{number + 1}" not in world.pods
        world.wait(3)
        world.all_run()
    world.loses("worker-2-r3")
    world.settle_deletions()
    assert "digits-worker-2-r4" in world.uids()
    assert (world.job.status.state, world.job.status.restarts.total) == ("Running", 0)
    assert world.job.status.root_cause is None
