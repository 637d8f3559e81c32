"""Jobs whose replicas are taken away: who starts again, under which name, and what is recorded first."""

from __future__ import annotations

import pytest

from dtj.api.json import dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import CreatePod, DeletePod, PatchStatus
from dtj.core.observed import Phase
from support.planned import called
from world import live, running


class TestCollectives:
    def test_all_start_again_when_one_is_taken_away(self) -> None:
        world = running()
        world.loses("worker-1")
        assert world.job.status.attempt == 2
        assert live(world) == {"digits-worker-0-r1", "digits-worker-1-r1"}
        assert {
            dig(world.manifests[name], "metadata", "labels", "training.dtj.dev/attempt") for name in live(world)
        } == {"2"}
        world.finish_deletions()
        world.all_run()
        assert world.job.status.state == "Running"
        assert world.job.status.ready == "2/2"

    def test_the_attempt_is_recorded_before_a_pod_is_touched(self) -> None:
        world = running()
        world.take_away("worker-1")
        first = world.step()
        assert not any(isinstance(action, CreatePod | DeletePod) for action in first)
        assert any(isinstance(action, PatchStatus) for action in first)
        assert world.events[-1].reason is Reason.NEW_ATTEMPT
        assert "worker-1" in world.events[-1].message

    def test_the_service_moves_to_the_new_attempt_before_its_pods_are_made(self) -> None:
        world = running()
        world.take_away("worker-1")
        world.step()
        kinds = [called(action) for action in world.step()]
        assert kinds.index("DeletePod") < kinds.index("Update Service") < kinds.index("CreatePod")
        assert world.service is not None
        assert world.service.selector["training.dtj.dev/attempt"] == "2"

    def test_peers_that_saved_and_left_are_no_failure_and_are_kept(self) -> None:
        world = running()
        world.take_away("worker-1")
        world.sees("worker-0", Phase.FAILED, exit_code=42)
        assert not world.is_true(Condition.FAILURE_TARGET)
        assert {"digits-worker-0", "digits-worker-0-r1"} <= live(world)

    def test_the_error_of_a_peer_after_the_loss_is_a_consequence(self) -> None:
        world = running()
        world.take_away("worker-1")
        world.advance(2)
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        assert world.job.status.attempt == 2

    def test_an_error_before_the_loss_is_the_cause(self) -> None:
        world = running(backoffLimit=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=1)
        world.advance(2)
        world.loses("worker-1")
        assert world.is_true(Condition.FAILURE_TARGET)

    def test_a_lost_peer_is_not_the_cause_where_a_replica_failed(self) -> None:
        world = running(backoffLimit=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.advance(2)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3, message="no such flower")
        world.settle_deletions()
        cause = world.root_cause()
        assert (cause.index, cause.exit_code) == (1, 3)

    def test_completion_is_of_an_attempt(self) -> None:
        world = running(roles={"chief": 1, "worker": 1, "evaluator": 1})
        world.sees("worker-0", Phase.SUCCEEDED)
        world.loses("chief-0")
        assert "digits-worker-0-r1" in live(world)


class TestParameterServers:
    ROLES = {"chief": 1, "worker": 2, "ps": 1}  # noqa: RUF012

    def test_a_worker_comes_back_alone_once_its_address_is_free(self) -> None:
        world = running(strategy="ParameterServer", roles=self.ROLES)
        others = {name: pod.uid for name, pod in world.pods.items() if name != "digits-worker-1"}
        world.loses("worker-1")
        assert "digits-worker-1-r1" not in world.pods, "two pods must not share an address"
        world.finish_deletions()
        world.settle()
        assert world.job.status.attempt == 1
        assert world.job.status.restarts.disruption == 1
        assert {name: world.pods[name].uid for name in others} == others
        assert "digits-worker-1-r1" in live(world)
        assert dig(world.manifests["digits-worker-1-r1"], "spec", "hostname") == "worker-1"

    def test_a_chief_comes_back_alone_to_servers_that_live_on(self) -> None:
        world = running(strategy="ParameterServer", roles=self.ROLES)
        servers = {name: pod.uid for name, pod in world.pods.items() if name != "digits-chief-0"}
        world.loses("chief-0")
        assert "digits-chief-0-r1" not in world.pods, "two coordinators must not command the same servers"
        world.finish_deletions()
        world.settle()
        assert {name: pod.uid for name, pod in world.pods.items() if name in servers} == servers
        assert live(world) == {*servers, "digits-chief-0-r1"}
        assert dig(world.manifests["digits-chief-0-r1"], "spec", "hostname") == "chief-0"
        assert (world.job.status.attempt, world.job.status.restarts.disruption) == (1, 1)
        assert world.job.status.replica_statuses["chief"].restarts == {"0": 1}
        world.run_all()
        world.set_pod("chief-0-r1", Phase.SUCCEEDED)
        world.settle_deletions()
        assert world.is_true(Condition.COMPLETE)
        assert set(world.pods) == {"digits-chief-0-r1"}

    @pytest.mark.parametrize("first", ["ps-0", "chief-0"])
    def test_all_start_again_when_chief_and_ps_are_lost_together(self, first: str) -> None:
        world = running(strategy="ParameterServer", roles=self.ROLES)
        world.take_away(first)
        world.advance(0.5)
        world.loses("chief-0" if first == "ps-0" else "ps-0")
        assert (world.job.status.attempt, world.job.status.restarts.total) == (2, 1)
        assert len(live(world)) == 4

    def test_a_ps_that_failed_pays_where_the_chief_lost_it_as_a_peer(self) -> None:
        world = running(strategy="ParameterServer", roles=self.ROLES)
        world.set_pod("chief-0", Phase.FAILED, exit_code=75)
        world.advance(2)
        world.sees("ps-0", Phase.FAILED, exit_code=137, reason="OOMKilled")
        world.wait(1)
        assert (world.job.status.attempt, world.job.status.restarts.out_of_memory) == (2, 1)
        assert world.job.status.restarts.total == 1

    def test_all_start_again_when_a_chief_hangs_on_a_dead_node_since_it_may_still_command_the_servers(self) -> None:
        world = running(strategy="ParameterServer", roles=self.ROLES)
        world.loses("chief-0")
        world.wait(59)
        assert world.job.status.attempt == 1
        world.wait(2)
        assert (world.job.status.attempt, world.job.status.restarts.total) == (2, 1)
        assert live(world) == {"digits-worker-0-r1", "digits-worker-1-r1", "digits-ps-0-r1", "digits-chief-0-r2"}


def test_a_collective_whose_member_vanished_without_a_trace_starts_again() -> None:
    world = running()
    world.remove("worker-1")
    world.sees("worker-0", Phase.FAILED, exit_code=75)
    (event,) = (event for event in world.events if event.reason is Reason.NEW_ATTEMPT)
    assert "worker-1 (pod digits-worker-1) was taken away" in event.message
    assert live(world) >= {"digits-worker-0-r1", "digits-worker-1-r1"}
    assert world.job.status.restarts.disruption == 1
