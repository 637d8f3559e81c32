"""Elastic jobs whose launchers exchange the members in place: no survivor's pod is touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from builders import job, spec_of
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from dtj.api.spec import MAX_REPLICAS
from dtj.core.actions import DeletePod, PatchStatus, RequeueAfter, TellPod
from dtj.core.membership import world_of
from dtj.core.observed import Phase
from support.elastic_world import elastic, trains

LEAVE = ("digits-worker-2", "digits-worker-3")


def with_servers(workers: int) -> Job:
    roles = {"chief": 1, "worker": workers, "ps": 2, "evaluator": 1}
    return job(strategy="ParameterServer", roles=roles, elastic={"maxReplicas": 8})


def test_a_pod_reads_the_members_from_a_file_that_the_kubelet_keeps_up_to_date() -> None:
    world = trains(elastic(2))
    pod = world.manifests["digits-worker-1"]
    (container,) = objects(dig(pod, "spec", "containers"))
    (path,) = (v["value"] for v in objects(container["env"]) if v["name"] == "DTJ_WORLD_FILE")
    (mount,) = (m for m in objects(container["volumeMounts"]) if str(path).startswith(f"{m['mountPath']}/"))
    (volume,) = (v for v in objects(dig(pod, "spec", "volumes")) if v["name"] == mount["name"])
    (item,) = objects(dig(volume, "downwardAPI", "items"))
    assert str(path) == f"{mount['mountPath']}/{item['path']}"
    assert dig(item, "fieldRef", "fieldPath") == "metadata.annotations['training.dtj.dev/world']"
    assert json.loads(str(dig(pod, "metadata", "annotations", "training.dtj.dev/world"))) == {
        "generation": 0,
        "members": {"worker": "0-1"},
        "address": "{role}-{index}.digits.default.svc:2222",
    }


STRATEGIES = pytest.mark.parametrize(
    ("made", "others"),
    [(partial(elastic, chief=1), {"chief": "0"}), (with_servers, {"chief": "0", "ps": "0-1"})],
    ids=["a collective", "parameter servers"],
)


@STRATEGIES
def test_a_job_that_is_scaled_up_trains_on_until_the_new_pods_have_imported(
    made: Callable[[int], Job], others: dict[str, str]
) -> None:
    world = trains(made(2))
    before = world.uids()
    world.becomes(made(4))
    assert set(world.uids()) - set(before) == {"digits-worker-2", "digits-worker-3"}
    world.all_run()
    assert world.members() == {**others, "worker": "0-1"}
    assert world.is_true(Condition.PODS_READY)
    assert "train without worker-2, worker-3" in world.condition(Condition.PODS_READY).message
    world.import_all()
    assert world.members() == {**others, "worker": "0-3"}
    assert world.job.status.attempt == 1
    assert before.items() <= world.uids().items()
    assert [event.message for event in world.events if event.reason is Reason.MEMBERS_CHANGED] == [
        "worker-2, worker-3 join; 5 of 5 replicas train (generation 1)"
    ]


@STRATEGIES
def test_the_others_know_that_a_worker_leaves_before_its_pod_is_deleted(
    made: Callable[[int], Job], others: dict[str, str]
) -> None:
    world = trains(made(4))
    before = world.uids()
    seen = len(world.history)
    world.becomes(made(2))
    steps = [action for action in world.history[seen:] if isinstance(action, PatchStatus | TellPod | DeletePod)]
    assert [type(action) for action in steps[:6]] == [PatchStatus, *3 * [TellPod], *2 * [DeletePod]]
    assert world.members() == {**others, "worker": "0-1"}
    world.set_pod("worker-3", Phase.FAILED, exit_code=42)  # which saved with the others
    world.set_pod("worker-2", Phase.FAILED, exit_code=143)
    world.settle_deletions()
    world.wait(1)  # who goes on is told once more
    told = {action.name for action in world.taken(TellPod) if isinstance(action, TellPod)}
    assert told == {"digits-chief-0", "digits-worker-0", "digits-worker-1"}
    assert world.uids().items() == before.items() - {(name, before[name]) for name in LEAVE}
    assert (world.job.status.attempt, world.job.status.state, world.job.status.restarts.total) == (1, "Running", 0)
    assert world.job.status.replica_statuses["worker"].desired == 2


def test_workers_that_the_job_wants_again_before_their_pods_are_gone_were_not_lost() -> None:
    limits = {"disruptionLimit": 0, "backoffLimit": 0}
    world = trains(elastic(4, runPolicy=limits))
    world.becomes(elastic(2, runPolicy=limits))
    world.becomes(elastic(4, runPolicy=limits))
    world.set_pod("worker-3", Phase.FAILED, exit_code=143)
    world.settle_deletions()
    world.all_join()
    assert world.members() == {"worker": "0-3"}
    assert (world.job.status.attempt, world.job.status.state, world.job.status.restarts.total) == (1, "Running", 0)


def test_a_failure_before_the_first_word_of_the_launcher_is_charged_once() -> None:
    world = trains(elastic(3, runPolicy={"backoffLimit": 1}), launched=False)
    world.sees("worker-2", Phase.FAILED, exit_code=1)
    assert world.job.status.pending_restart is not None
    world.launched = True
    world.settle()
    world.wait(5)
    assert (world.job.status.attempt, world.job.status.restarts.user) == (1, 1)


def test_each_pod_is_told_twice_since_a_kubelet_may_overlook_the_first_time() -> None:
    world = trains(elastic(4))
    world.becomes(elastic(2))
    world.settle_deletions()
    first = {pod.name: pod.world for pod in world.pods.values()}
    assert len(world.taken(TellPod)) == 2
    assert any(isinstance(action, RequeueAfter) and 0 < action.seconds <= 1 for action in world.step())
    world.wait(1)
    second = {pod.name: pod.world for pod in world.pods.values()}
    assert all(first[name] != second[name] for name in first)
    assert world.members() == {"worker": "0-1"}
    world.wait(60)
    assert len(world.taken(TellPod)) == 4


@pytest.mark.parametrize("lost", ["worker-0", "worker-1", "worker-2"])
def test_a_lost_worker_is_waited_for_and_then_given_up_and_joins_when_it_is_back(lost: str) -> None:
    world = trains(elastic(3))
    before = world.uids()
    world.loses(lost)
    world.settle_deletions()
    assert f"digits-{lost}-r1" in world.uids()
    world.wait(29)
    assert world.members() == {"worker": "0-2"}
    world.wait(2)
    rest = {"worker-0": "1-2", "worker-1": "0,2", "worker-2": "0-1"}[lost]
    assert world.members() == {"worker": rest}
    assert world.is_true(Condition.PODS_READY)
    world.all_run()
    assert world.members() == {"worker": rest}
    world.import_all()
    assert world.members() == {"worker": "0-2"}
    assert world.job.status.attempt == 1
    survivors = {name: uid for name, uid in before.items() if name != f"digits-{lost}"}
    assert survivors.items() <= world.uids().items()


def test_a_lost_worker_that_is_back_in_time_is_a_member_all_along() -> None:
    world = trains(elastic(3))
    world.loses("worker-1")
    world.settle_deletions()
    world.all_run()
    world.wait(60)
    assert not world.taken(TellPod)
    assert world.members() == {"worker": "0-2"}


def test_a_worker_whose_node_is_silent_is_given_up_before_anybody_deletes_its_pod() -> None:
    world = trains(elastic(3))
    before = world.uids()
    name = "digits-worker-1"
    world.pods[name] = replace(world.pods[name], ready=False)
    world.settle()
    world.wait(29)
    assert world.members() == {"worker": "0-2"}
    world.wait(2)
    assert world.members() == {"worker": "0,2"}
    world.all_join()
    assert world.members() == {"worker": "0-2"}
    assert world.uids() == before


def test_a_worker_is_given_up_in_time_although_the_clock_is_set_back_meanwhile() -> None:
    world = trains(elastic(3))
    name = "digits-worker-1"
    world.pods[name] = replace(world.pods[name], ready=False)
    world.settle()
    world.wait(-3600)
    assert world.members() == {"worker": "0,2"}


def test_no_worker_is_given_up_if_too_few_would_stay() -> None:
    world = trains(elastic(3, least=3))
    world.loses("worker-1")
    world.finish_deletions()
    world.wait(120)
    assert world.members() == {"worker": "0-2"}
    assert not world.is_true(Condition.PODS_READY)


def test_the_first_member_decides_about_success_if_worker_0_was_given_up() -> None:
    world = trains(elastic(3))
    world.loses("worker-0")
    world.finish_deletions()
    world.wait(31)
    world.sees("worker-1", Phase.SUCCEEDED)
    assert world.is_true(Condition.SUCCESS_CRITERIA_MET)


@pytest.mark.parametrize(
    ("made", "launched"),
    [(elastic, False), (with_servers, False), (partial(elastic, runPolicy={"restartScope": "Job"}), True)],
    ids=["a collective", "parameter servers", "all by restartScope"],
)
def test_all_start_again_where_the_launcher_cannot_exchange_the_members(
    made: Callable[[int], Job], launched: bool
) -> None:
    world = trains(made(2), launched=launched)
    world.becomes(made(3))
    assert world.job.status.attempt == 2


def test_a_job_that_goes_on_with_an_image_without_the_launcher_starts_again_when_it_is_scaled() -> None:
    world = trains(elastic(2))
    world.becomes(elastic(2, runPolicy={"suspend": True}))
    world.settle_deletions()
    world.launched = False
    world.becomes(elastic(2))
    world.all_run()
    world.pods = {name: replace(pod, ip="10.0.0.1") for name, pod in world.pods.items()}
    world.becomes(elastic(3))
    assert world.job.status.attempt == 2, "its launcher may not have spoken yet"
    world.wait(60)
    assert world.job.status.attempt == 3


def test_a_job_that_is_scaled_before_the_first_word_of_its_launcher_waits_for_it_a_minute() -> None:
    speaks, silent = trains(elastic(2), launched=False), trains(elastic(2), launched=False)
    for world in (speaks, silent):
        world.pods = {name: replace(pod, ip="10.0.0.1") for name, pod in world.pods.items()}
        world.becomes(elastic(3))
        world.wait(30)
        assert (world.job.status.attempt, len(world.uids())) == (1, 2)
    speaks.launched = True
    speaks.settle()
    assert (speaks.job.status.attempt, len(speaks.uids())) == (1, 3)
    silent.wait(30)
    assert silent.job.status.attempt == 2


@STRATEGIES
def test_an_operator_that_lost_the_status_goes_on_with_what_the_newest_pod_knows(
    made: Callable[[int], Job], others: dict[str, str]
) -> None:
    world = trains(made(4))
    world.becomes(made(2))
    world.settle_deletions()
    world.wait(2)
    told = len(world.taken(TellPod))
    world.job = replace(world.job, status=world.job.status.model_copy(update={"world": None}))
    world.settle()
    assert world.members() == {**others, "worker": "0-1"}
    assert len(world.taken(TellPod)) == told
    world.becomes(made(3))
    world.all_join()
    assert world.members() == {**others, "worker": "0-2"}
    assert world.job.status.world is not None
    assert world.job.status.world.generation == 2


def test_a_new_attempt_and_a_resumed_job_begin_with_all_replicas() -> None:
    world = trains(elastic(4))
    world.becomes(elastic(2))
    world.settle_deletions()
    suspended = elastic(3, runPolicy={"suspend": True})
    world.becomes(suspended)
    world.settle_deletions()
    assert world.job.status.world is None
    world.becomes(elastic(3))
    world.all_run()
    assert world.members() == {"worker": "0-2"}


def test_a_lost_worker_of_a_parameter_server_job_is_a_member_however_long_it_is_away() -> None:
    world = trains(with_servers(2))
    before = world.uids()
    world.loses("worker-1")
    world.finish_deletions()
    world.wait(3600)
    world.all_run()
    assert world.members() == {"chief": "0", "worker": "0-1", "ps": "0-1"}
    assert not world.taken(TellPod)
    assert world.uids().keys() == {*before.keys() - {"digits-worker-1"}, "digits-worker-1-r1"}
    assert world.job.status.attempt == 1


def test_a_coordinator_that_starts_with_other_workers_waits_for_none_that_is_lost() -> None:
    world = trains(with_servers(3))
    world.loses("worker-0")
    world.finish_deletions()
    world.becomes(with_servers(2))
    assert world.members() == {"chief": "0", "worker": "1", "ps": "0-1"}
    world.settle_deletions()
    world.all_join()
    assert world.members() == {"chief": "0", "worker": "0-1", "ps": "0-1"}
    assert world.job.status.attempt == 1


def test_all_workers_stay_members_where_none_of_them_is_ready_when_their_number_changes() -> None:
    world = trains(with_servers(2))
    for name in ("worker-0", "worker-1"):
        world.loses(name)
    world.finish_deletions()
    world.becomes(with_servers(1))
    assert world.members() == {"chief": "0", "worker": "0", "ps": "0-1"}


def test_all_start_again_when_a_parameter_server_is_lost_and_begin_with_all_workers() -> None:
    world = trains(with_servers(1))
    world.becomes(with_servers(2))
    world.all_join()
    world.loses("ps-1")
    world.settle_deletions()
    world.all_run()
    assert world.job.status.attempt == 2
    assert world.job.status.world is None
    assert world.members() == {"chief": "0", "worker": "0-1", "ps": "0-1"}


def test_no_more_members_are_counted_than_a_job_can_have_whatever_its_status_says() -> None:
    made = elastic(2)
    status: JsonObject = {"replicaStatuses": {"worker": {"desired": 30_000}}}
    world = world_of(made.with_status(status), spec_of(made))
    assert world is not None
    assert len(world.members) == MAX_REPLICAS
