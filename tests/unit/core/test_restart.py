"""Jobs whose replicas are taken away: who starts again, alone or with all, under which name, and what comes first."""

from __future__ import annotations

from typing import Final

import pytest

from dtj.api.json import dig
from dtj.api.names import Condition, Reason
from dtj.api.status import RestartCounts
from dtj.core.actions import CreatePod, DeletePod, PatchStatus
from dtj.core.observed import Phase
from support.planned import called
from support.pod_environment import environment_of
from world import live, running

PS: Final = {"chief": 1, "worker": 2, "ps": 1}


class TestCollectives:
    def test_all_start_again_when_one_is_taken_away(self) -> None:
        world = running()
        world.loses("worker-1")
        assert world.job.status.attempt == 2
        assert world.events[-1].message == "created 2 pods for attempt 2 (2 worker)"
        assert live(world) == {"digits-worker-0-r1", "digits-worker-1-r1"}
        assert {
            dig(world.manifests[name], "metadata", "labels", "training.dtj.dev/attempt") for name in live(world)
        } == {"2"}
        world.finish_deletions()
        world.all_run()
        assert world.job.status.state == "Running"
        assert world.job.status.ready == "2/2"

    def test_the_attempt_is_recorded_then_old_pods_go_then_the_service_moves_then_new_pods_come(self) -> None:
        world = running()
        world.take_away("worker-1")
        first = world.step()
        assert not any(isinstance(action, CreatePod | DeletePod) for action in first)
        assert any(isinstance(action, PatchStatus) for action in first)
        assert world.events[-1].reason is Reason.NEW_ATTEMPT
        assert "worker-1" in world.events[-1].message
        kinds = [called(action) for action in world.step()]
        assert kinds.index("DeletePod") < kinds.index("Update Service") < kinds.index("CreatePod")
        assert world.service is not None
        assert world.service.selector["training.dtj.dev/attempt"] == "2"

    def test_completion_is_of_an_attempt(self) -> None:
        world = running(roles={"chief": 1, "worker": 1, "evaluator": 1})
        world.sees("worker-0", Phase.SUCCEEDED)
        world.loses("chief-0")
        assert "digits-worker-0-r1" in live(world)


LOST: Final = {
    "after the loss, a peer has saved and left": ([("worker-1", "lost"), ("worker-0", 42)], "the infrastructure"),
    "after the loss, a peer has an error": ([("worker-1", "lost"), ("worker-0", 1)], "the infrastructure"),
    "before the loss, a peer has an error": ([("worker-0", 1), ("worker-1", "lost")], "worker-0"),
    "a peer is lost before it shows that another failed": ([("worker-0", 75), ("worker-1", 3)], "worker-1"),
    "a member vanishes without a trace": ([("worker-1", "gone"), ("worker-0", 75)], "the infrastructure"),
}


@pytest.mark.parametrize(("ends", "cause"), LOST.values(), ids=LOST)
def test_of_several_ends_the_first_that_is_no_consequence_is_the_cause(
    ends: list[tuple[str, str | int]], cause: str
) -> None:
    world = running(backoffLimit=0)
    for replica, how in ends:
        if how == "lost":
            world.take_away(replica)
        elif how == "gone":
            world.remove(replica)
        else:
            world.set_pod(replica, Phase.FAILED, exit_code=int(how))
        world.advance(2)
    world.settle()
    if cause == "the infrastructure":
        assert {"digits-worker-0", "digits-worker-0-r1", "digits-worker-1-r1"} <= live(world), "the failed pod is kept"
        assert world.job.status.restarts == RestartCounts(disruption=1, total=1)
        (event,) = (event for event in world.events if event.reason is Reason.NEW_ATTEMPT)
        assert "worker-1 (pod digits-worker-1) was taken away" in event.message
    else:
        assert world.is_true(Condition.FAILURE_TARGET)
        found = world.root_cause()
        assert f"{found.role}-{found.index}" == cause


class TestParameterServers:
    def test_the_chief_that_came_back_completes_the_job(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.loses("chief-0")
        world.settle_deletions()
        world.run_all()
        world.set_pod("chief-0-r1", Phase.SUCCEEDED)
        world.settle_deletions()
        assert world.is_true(Condition.COMPLETE)
        assert set(world.pods) == {"digits-chief-0-r1"}

    @pytest.mark.parametrize("first", ["ps-0", "chief-0"])
    def test_all_start_again_when_chief_and_ps_are_lost_together(self, first: str) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.take_away(first)
        world.advance(0.5)
        world.loses("chief-0" if first == "ps-0" else "ps-0")
        assert (world.job.status.attempt, world.job.status.restarts.total) == (2, 1)
        assert len(live(world)) == 4

    def test_a_ps_that_failed_pays_where_the_chief_lost_it_as_a_peer(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.set_pod("chief-0", Phase.FAILED, exit_code=75)
        world.advance(2)
        world.sees("ps-0", Phase.FAILED, exit_code=137, reason="OOMKilled")
        world.wait(1)
        assert (world.job.status.attempt, world.job.status.restarts.out_of_memory) == (2, 1)
        assert world.job.status.restarts.total == 1

    def test_all_start_again_when_a_chief_hangs_on_a_dead_node_since_it_may_still_command_the_servers(self) -> None:
        world = running(strategy="ParameterServer", roles=PS)
        world.loses("chief-0")
        world.wait(59)
        assert world.job.status.attempt == 1
        world.wait(2)
        assert (world.job.status.attempt, world.job.status.restarts.total) == (2, 1)
        assert live(world) == {"digits-worker-0-r1", "digits-worker-1-r1", "digits-ps-0-r1", "digits-chief-0-r2"}


DATA: Final = {"worker": 2, "dispatcher": 1, "data-worker": 2}
POD: Final = {"restartScope": "Pod"}
ALONE: Final = {
    "a worker of parameter servers": ("ParameterServer", PS, {}, "worker-1"),
    "a chief, to servers that live on": ("ParameterServer", PS, {}, "chief-0"),
    "one device": ("OneDevice", {"worker": 1, "evaluator": 1}, {}, "worker-0"),
    "a chief with several devices": ("Mirrored", {"chief": 1, "evaluator": 1}, {}, "chief-0"),
    "variables in central storage": ("CentralStorage", {"worker": 1, "evaluator": 1}, {}, "worker-0"),
    "an evaluator": ("MultiWorkerMirrored", {"worker": 2, "evaluator": 1}, {}, "evaluator-0"),
    "a dispatcher of data": ("MultiWorkerMirrored", DATA, {}, "dispatcher-0"),
    "a worker of the data service": ("MultiWorkerMirrored", DATA, {}, "data-worker-1"),
    "a member of a collective that is mended pod by pod": ("MultiWorkerMirrored", {"worker": 3}, POD, "worker-1"),
}


@pytest.mark.parametrize(("strategy", "roles", "policy", "lost"), ALONE.values(), ids=ALONE)
def test_it_comes_back_alone_at_the_infrastructures_cost_once_its_address_is_free(
    strategy: str, roles: dict[str, int], policy: dict[str, str], lost: str
) -> None:
    world = running(strategy=strategy, roles=roles, **policy)  # type: ignore[arg-type]
    others = {name: pod.uid for name, pod in world.pods.items() if name != f"digits-{lost}"}
    world.loses(lost)
    again = f"digits-{lost}-r1"
    assert again not in world.pods, "no two pods share an address, servers or checkpoints"
    world.settle_deletions()
    assert live(world) == {*others, again}
    assert {name: world.pods[name].uid for name in others} == others
    assert dig(world.manifests[again], "spec", "hostname") == lost
    assert environment_of(world.manifests[again]) == environment_of(world.manifests[f"digits-{lost}"])
    environment = environment_of(world.manifests[again])
    assert (environment["DTJ_ATTEMPT"], environment.get("DTJ_RESTART_SCOPE")) == ("1", policy.get("restartScope"))
    assert (world.job.status.attempt, world.job.status.restarts) == (1, RestartCounts(disruption=1, total=1))
    role, _, index = lost.rpartition("-")
    assert world.job.status.replica_statuses[role].restarts == {index: 1}


class TestCollectivesThatAreMendedPodByPod:
    """``restartScope: Pod``: the others hold in their launchers, and meet the new pod under the old address."""

    def test_survivors_that_gave_up_come_back_too_and_are_not_charged(self) -> None:
        world = running(roles={"worker": 3}, restartScope="Pod")
        world.set_pod("worker-1", Phase.FAILED, exit_code=3)
        world.wait(1)
        world.run_all()
        world.advance(2)
        for survivor in ("worker-0", "worker-2"):
            world.set_pod(survivor, Phase.FAILED, exit_code=75)
        world.settle()
        world.wait(5)
        assert {name for name, pod in world.pods.items() if not pod.main_container_ended} == {
            "digits-worker-0-r1",
            "digits-worker-1-r1",
            "digits-worker-2-r1",
        }
        counts = world.job.status.restarts
        assert (world.job.status.attempt, counts.user, counts.disruption, counts.total) == (1, 1, 0, 1)

    def test_of_many_that_come_back_ten_have_an_event_each_and_one_says_how_many_more_there_are(self) -> None:
        world = running(roles={"worker": 30}, restartScope="Pod")
        for index in range(30):
            world.take_away(f"worker-{index}")
        world.settle()
        told = [event.message for event in world.events if event.reason == Reason.REPLICA_RESTARTED]
        assert len(told) == 11
        assert told[-1] == "20 more replicas were lost, and each starts again alone"
        assert world.job.status.replica_statuses["worker"].restarts == {str(index): 1 for index in range(30)}
        assert world.job.status.restarts == RestartCounts(disruption=30, total=30)

    def test_pods_that_only_lose_each_other_are_charged_once_a_round(self) -> None:
        world = running(roles={"worker": 2}, restartScope="Pod")
        for number in (1, 2, 3):
            for index in (0, 1):
                world.set_pod(f"worker-{index}" + f"-r{number - 1}" * (number > 1), Phase.FAILED, exit_code=75)
            world.settle()
            world.wait(5)
            world.run_all()
            world.advance(20)
            assert world.job.status.restarts.disruption == number

    def test_all_start_again_where_a_member_has_completed_that_one_alone_would_wait_for(self) -> None:
        world = running(roles={"chief": 1, "worker": 1}, restartScope="Pod")
        world.sees("worker-0", Phase.SUCCEEDED)
        world.set_pod("chief-0", Phase.FAILED, exit_code=137)
        world.wait(1)
        assert world.job.status.attempt == 2
        assert {"digits-chief-0-r1", "digits-worker-0-r1"} <= live(world)
