"""The planner, case by case. Each test reads as one sentence about a job."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import pytest

from builders import NOW, job, pod
from dtj.api.names import Condition, Reason
from dtj.core.actions import (
    CheckPods,
    CreateClaim,
    CreatePod,
    CreateService,
    DeletePod,
    Emit,
    PatchStatus,
    RequeueAfter,
)
from dtj.core.observed import Child, CreationRefusal, Observed, Phase, TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import Platform
from world import World, running

pytestmark = pytest.mark.unit


NO_RETRY = {"backoffLimit": 0}


def kinds(actions: tuple[object, ...]) -> list[str]:
    return [type(action).__name__ for action in actions]


class TestStarting:
    def test_templates_are_checked_before_anything_is_created(self) -> None:
        world = World(job(strategy="ParameterServer", roles={"chief": 1, "worker": 4, "ps": 2}))
        (check,) = world.step()
        assert isinstance(check, CheckPods)
        assert [m["metadata"]["name"] for m in check.manifests] == [  # type: ignore[index,call-overload]
            "digits-chief-0",
            "digits-worker-0",
            "digits-ps-0",
        ]

    def test_the_record_comes_first_then_the_service_and_the_event_last(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.step()
        assert kinds(world.step()) == ["PatchStatus", "CreateService", "CreatePod", "CreatePod", "Emit"]

    def test_a_plan_of_many_pods_holds_none_of_their_manifests(self) -> None:
        large = Observed(job=job(roles={"worker": 2000}), platform=Platform(), verdict=TemplateVerdict(1, NOW))
        tracemalloc.start()
        try:
            made = [action for action in plan(large, NOW) if isinstance(action, CreatePod)]
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        one = len(json.dumps(made[0].render()))
        assert one > 50_000, "each manifest holds the addresses of all peers"
        assert held < 100 * one

    def test_four_workers_and_two_ps_make_six_pods(self) -> None:
        world = World(job(strategy="ParameterServer", roles={"worker": 4, "ps": 2}))
        world.settle()
        assert sorted(world.pods) == [
            "digits-ps-0",
            "digits-ps-1",
            "digits-worker-0",
            "digits-worker-1",
            "digits-worker-2",
            "digits-worker-3",
        ]

    def test_six_pending_pods_are_left_alone(self) -> None:
        world = World(job(roles={"worker": 6}))
        world.settle()
        assert world.step() == ()
        assert world.job.status.state == "Starting"

    def test_a_job_that_does_not_change_gets_an_empty_plan(self) -> None:
        assert running().step() == ()

    def test_exactly_the_missing_pods_are_created(self) -> None:
        world = World(job(roles={"worker": 4}))
        world.settle()
        world.remove("worker-1")
        world.remove("worker-3")
        created = [action for action in world.step() if isinstance(action, CreatePod)]
        assert [action.name for action in created] == [
            "digits-worker-1",
            "digits-worker-3",
        ]

    def test_one_of_six_running_is_starting_and_says_so(self) -> None:
        world = World(job(roles={"worker": 6}))
        world.settle()
        world.set_pod("worker-0", Phase.RUNNING)
        world.advance(30)
        world.settle()
        assert (world.job.status.state, world.job.status.ready) == ("Starting", "1/6")
        assert not world.is_true(Condition.PODS_READY)

    def test_all_pods_ready_is_running(self) -> None:
        world = running(roles={"worker": 3})
        assert world.is_true(Condition.PODS_READY)
        assert (world.job.status.state, world.job.status.ready) == ("Running", "3/3")

    def test_a_service_deleted_by_hand_is_made_again(self) -> None:
        world = running()
        world.service = None
        assert CreateService in map(type, world.step())

    def test_a_role_without_replicas_takes_no_part(self) -> None:
        world = running(roles={"worker": 2, "evaluator": 0})
        assert "evaluator" not in world.job.status.replica_statuses
        assert len(world.pods) == 2

    def test_a_claim_template_makes_one_claim_before_the_pods(self) -> None:
        world = World(job(checkpoint={"claimTemplate": {"storage": "1Gi"}}))
        world.step()
        assert kinds(world.step())[:4] == ["PatchStatus", "CreateClaim", "CreateService", "CreatePod"]
        assert world.taken(CreateClaim)
        assert world.claim is not None
        assert world.claim.name == "digits-checkpoint"

    def test_a_deleted_job_gets_no_plan(self) -> None:
        deleting = replace(job(), deleting=True)
        assert plan(Observed(job=deleting, platform=Platform()), NOW) == ()


class TestStatusWrites:
    def test_a_start_of_many_pods_costs_two_status_writes(self) -> None:
        world = World(job(roles={"worker": 50}))
        world.settle()
        for index in range(50):
            world.set_pod(f"worker-{index}", Phase.RUNNING)
            world.advance(0.1)
            world.settle()
        assert world.job.status.state == "Running"
        assert len(world.taken(PatchStatus)) == 2
        assert len(world.events) == 1

    def test_a_change_of_counts_alone_waits_for_its_turn(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.settle()
        world.advance(1)
        world.set_pod("worker-0", Phase.RUNNING)
        assert world.step() == (RequeueAfter(9.0),)

    def test_conditions_of_others_are_left_alone(self) -> None:
        body = job()
        foreign = body.status.from_object({"conditions": [{"type": "QuotaReserved", "status": "True"}]})
        world = World(replace(body, status=foreign))
        world.settle()
        assert world.job.status.conditions[0].type == "QuotaReserved"

    def test_every_condition_is_there_from_the_first_write(self) -> None:
        world = World(job())
        world.settle()
        assert {condition.type for condition in world.job.status.conditions} == set(Condition)

    def test_a_transition_time_moves_only_with_the_status_of_its_condition(self) -> None:
        world = World(job())
        world.settle()
        world.advance(60)
        world.run_all()
        world.settle()
        times = {c.type: c.last_transition_time for c in world.job.status.conditions}
        assert times[Condition.PODS_READY] != times[Condition.COMPLETE]


class TestSuccess:
    def test_the_chiefs_success_is_the_jobs_and_ends_the_workers(self) -> None:
        world = running(roles={"chief": 1, "worker": 2})
        world.set_pod("chief-0", Phase.SUCCEEDED)
        actions = world.step()
        assert kinds(actions) == ["PatchStatus", "DeletePod", "DeletePod"]
        assert not world.is_true(Condition.COMPLETE), "workers still run"
        world.finish_deletions()
        world.settle()
        assert world.is_true(Condition.COMPLETE)
        assert world.job.status.state == "Succeeded"
        assert world.job.status.completion_time is not None

    def test_a_peer_that_is_stopped_at_the_end_counts_as_failed_neither_while_it_goes_nor_when_it_is_gone(self) -> None:
        world = running()
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        gone = world.job.status.replica_statuses["worker"].model_copy(update={"active": 0, "ready": 0})
        world.set_pod("worker-1", Phase.FAILED, exit_code=143)
        world.settle()
        assert world.job.status.state == "Succeeded"
        assert world.job.status.replica_statuses["worker"] == gone

    def test_without_a_chief_worker_0_decides(self) -> None:
        world = running(roles={"worker": 2})
        world.set_pod("worker-1", Phase.SUCCEEDED)
        world.settle()
        assert not world.is_true(Condition.SUCCESS_CRITERIA_MET)
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        assert world.is_true(Condition.COMPLETE)

    def test_all_workers_must_succeed_where_the_policy_says_so(self) -> None:
        world = running(runPolicy={"successPolicy": "AllWorkers"})
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        assert not world.is_true(Condition.COMPLETE)
        world.set_pod("worker-1", Phase.SUCCEEDED)
        world.settle()
        assert world.is_true(Condition.COMPLETE)

    def test_parameter_servers_are_stopped_at_the_end(self) -> None:
        world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1})
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.settle()
        world.finish_deletions()
        world.settle()
        assert sorted(world.pods) == ["digits-chief-0"]
        assert world.is_true(Condition.COMPLETE)

    @pytest.mark.parametrize("leader", ["chief-0", "worker-0"])
    def test_stages_of_a_pipeline_are_stopped_once_the_leader_has_completed(self, leader: str) -> None:
        world = running(strategy="Pipeline", roles={"chief": int(leader == "chief-0"), "worker": 2})
        world.set_pod(leader, Phase.SUCCEEDED)
        world.settle()
        world.finish_deletions()
        world.settle()
        assert sorted(world.pods) == [f"digits-{leader}"]
        assert world.is_true(Condition.COMPLETE)

    def test_a_completed_replica_never_runs_again_even_if_its_pod_is_deleted(self) -> None:
        world = running(roles={"worker": 3}, runPolicy={"successPolicy": "AllWorkers"})
        world.set_pod("worker-2", Phase.SUCCEEDED)
        world.settle()
        assert world.job.status.replica_statuses["worker"].completed_indexes == "2"
        world.remove("worker-2")
        world.settle()
        assert "digits-worker-2" not in world.pods

    def test_a_worker_that_fails_after_the_chief_completed_is_no_failure(self) -> None:
        world = running(roles={"chief": 1, "worker": 1})
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.advance(3)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.settle()
        assert world.is_true(Condition.COMPLETE)
        assert "digits-worker-0 failed after that" in world.events[-1].message

    def test_the_outcome_is_recorded_before_a_pod_is_touched(self) -> None:
        world = running(roles={"chief": 1, "worker": 1}, runPolicy={"cleanPodPolicy": "All"})
        world.set_pod("chief-0", Phase.SUCCEEDED)
        world.step()
        world.finish_deletions()
        assert not world.pods, "all evidence is gone"
        world.settle()
        assert world.is_true(Condition.COMPLETE)

    def test_success_is_final(self) -> None:
        world = running()
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        world.finish_deletions()
        world.settle()
        world.pods.clear()
        world.service = None
        assert world.step() == ()


class TestFailure:
    def test_the_first_failure_is_the_cause(self) -> None:
        world = running(roles={"worker": 3}, runPolicy=NO_RETRY)
        world.set_pod("worker-2", Phase.FAILED, exit_code=137, message="Killed")
        world.advance(2)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.settle()
        world.finish_deletions()
        world.settle()
        cause = world.job.status.root_cause
        assert cause is not None
        assert (cause.role, cause.index, cause.pod) == ("worker", 2, "digits-worker-2")
        assert (cause.exit_code, cause.signal, cause.node) == (137, 9, "node-1")
        assert world.is_true(Condition.FAILED)
        assert not world.is_true(Condition.COMPLETE)

    def test_the_event_names_pod_code_and_last_line(self) -> None:
        world = running(runPolicy=NO_RETRY)
        world.set_pod("worker-1", Phase.FAILED, exit_code=3, message="first\nshapes do not match")
        world.settle()
        world.finish_deletions()
        world.settle()
        assert world.events[-1] == Emit(
            "Warning",
            Reason.BACKOFF_LIMIT_EXCEEDED,
            "worker-1 (pod digits-worker-1) exited with code 3: shapes do not match",
        )

    def test_failed_pods_are_kept_as_evidence(self) -> None:
        world = running(runPolicy=NO_RETRY)
        world.set_pod("worker-1", Phase.FAILED)
        world.settle()
        world.finish_deletions()
        world.settle()
        assert sorted(world.pods) == ["digits-worker-1"]

    def test_a_failed_job_starts_nothing_again(self) -> None:
        world = running(runPolicy=NO_RETRY)
        world.set_pod("worker-1", Phase.FAILED)
        world.settle()
        world.finish_deletions()
        world.settle()
        world.pods.clear()
        assert world.step() == ()


@pytest.mark.parametrize("ending", ["success", "failure"])
@pytest.mark.parametrize(
    ("policy", "kept"),
    [("Running", ["digits-worker-0"]), ("All", []), ("None", ["digits-worker-0", "digits-worker-1"])],
)
def test_clean_pod_policy_holds_for_every_ending(policy: str, kept: list[str], ending: str) -> None:
    world = running(runPolicy={"cleanPodPolicy": policy, **NO_RETRY})
    world.set_pod("worker-0", Phase.SUCCEEDED if ending == "success" else Phase.FAILED)
    world.settle()
    world.finish_deletions()
    world.settle()
    assert sorted(world.pods) == kept
    assert world.is_true(Condition.COMPLETE if ending == "success" else Condition.FAILED)


class TestStrangers:
    def test_a_new_job_waits_in_silence_for_the_names_of_its_predecessor(self) -> None:
        owner = job()
        world = World(owner)
        predecessor = pod(owner, "worker-0", owner_uid="the-job-of-this-name-before")
        world.pods[predecessor.name] = predecessor
        world.advance(1)
        assert world.step() == (RequeueAfter(9.0),)
        del world.pods[predecessor.name]
        world.settle()
        assert len(world.pods) == 2

    def test_a_pod_of_another_owner_is_never_touched_and_is_shown(self) -> None:
        owner = job()
        world = World(owner)
        stranger = pod(owner, "worker-0", owner_uid="somebody-else")
        world.pods[stranger.name] = stranger
        world.advance(11)
        world.settle()
        assert world.pods == {stranger.name: stranger}
        assert not world.taken(DeletePod)
        assert world.job.status.reason == Reason.NAME_TAKEN
        assert 'pod "digits-worker-0"' in world.events[-1].message

    def test_a_service_of_another_owner_is_never_touched_and_is_shown(self) -> None:
        world = World(job())
        world.service = Child("default", "digits", uid="s", owner_uid="")
        world.advance(11)
        world.settle()
        assert not world.pods
        assert 'service "digits"' in world.events[-1].message

    def test_the_job_goes_on_when_the_stranger_is_gone(self) -> None:
        world = World(job())
        world.service = Child("default", "digits", uid="s", owner_uid="")
        world.advance(11)
        world.settle()
        world.service = None
        world.settle()
        assert len(world.pods) == 2

    def test_a_pod_with_our_labels_and_another_name_is_ignored(self) -> None:
        owner = job()
        world = running()
        world.pods["x"] = replace(pod(owner, "worker-7", owner_uid="another"), name="x")
        assert world.step() == ()


class TestTrouble:
    def test_a_rejected_template_is_invalid_in_the_servers_own_words_and_creates_nothing(self) -> None:
        world = World(job(), template_errors=('digits-worker-0: unknown field "spec.containers[0].imagee"',))
        world.settle()
        assert world.is_true(Condition.INVALID)
        assert not world.pods
        assert 'unknown field "spec.containers[0].imagee"' in world.events[-1].message

    def test_a_refused_creation_is_shown_once_and_tried_again(self) -> None:
        world = World(job())
        world.step()
        world.refusal = CreationRefusal("digits-worker-0", "Forbidden", "exceeded quota: pods", NOW)
        first = world.step()
        assert [type(a) for a in first if isinstance(a, Emit)] == [Emit]
        assert world.job.status.reason == Reason.POD_CREATION_FAILED
        world.pods.clear()
        assert not any(isinstance(action, Emit) for action in world.step())

    def test_what_keeps_the_template_from_being_checked_is_shown_once(self) -> None:
        world = World(job(), obstacle="failed calling webhook")
        patch, check = world.planned()
        assert (type(patch), type(check)) == (PatchStatus, CheckPods)
        world.step()
        assert world.job.status.reason == Reason.API_CALL_FAILED
        world.verdict = None
        assert [type(action) for action in world.planned()] == [CheckPods]

    def test_a_pod_that_may_not_be_deleted_is_shown_on_a_suspended_job(self) -> None:
        world = running()
        world.job = replace(world.job, spec=job(runPolicy={"suspend": True}).spec, generation=2)
        world.step()
        world.obstacle = 'cannot delete resource "pods"'
        world.step()
        ready = world.job.status.condition(Condition.PODS_READY)
        assert ready is not None
        assert (ready.reason, ready.message) == (Reason.API_CALL_FAILED, world.obstacle)
        assert world.job.status.state == "Suspended"

    def test_words_of_others_are_printable_in_the_status(self) -> None:
        world = World(job(), obstacle="a webhook says \x1b[2J\x9b2Jno\u202e, twice:\nno\ud800")
        world.step()
        ready = world.job.status.condition(Condition.PODS_READY)
        assert ready is not None
        assert ready.message == "a webhook says no\ufffd, twice:\nno\ufffd"

    def test_a_job_that_runs_has_no_obstacle(self) -> None:
        world = running()
        world.obstacle = "slow down"
        assert world.step() == ()

    def test_a_rejected_template_is_asked_about_again(self) -> None:
        world = World(job(), template_errors=("worker: a policy refuses it",))
        world.settle()
        assert world.planned() == (RequeueAfter(60.0),)
        world.template_errors = ()
        world.advance(30)
        assert world.planned() == (RequeueAfter(30.0),)
        world.advance(30)
        world.settle()
        assert world.pods
        assert not world.is_true(Condition.INVALID)

    def test_a_template_that_is_rejected_once_the_job_runs_does_not_make_it_invalid(self) -> None:
        world = World(job(roles={"worker": 2}))
        world.settle()
        world.verdict = None
        world.template_errors = ("worker: the server's mind has changed",)
        world.remove("worker-1")
        world.settle()
        assert not world.is_true(Condition.INVALID)
        assert "digits-worker-1" in world.pods, "its creation says what is wrong, where something is"

    def test_an_unknown_profile_is_invalid_and_names_the_known_ones(self) -> None:
        world = World(job(accelerator={"profile": "nvidia-l5"}))
        world.settle()
        assert world.is_true(Condition.INVALID)
        condition = world.job.status.condition(Condition.INVALID)
        assert condition is not None
        assert condition.message.startswith('spec.accelerator.profile: there is no accelerator profile "nvidia-l5"')
        assert "nvidia-l4" in condition.message

    def test_a_slice_with_the_wrong_number_of_hosts_is_invalid_and_says_the_right_one(self) -> None:
        world = World(job(strategy="TPU", roles={"worker": 3}, accelerator={"profile": "tpu-v5e", "topology": "4x4"}))
        world.settle()
        condition = world.job.status.condition(Condition.INVALID)
        assert condition is not None
        assert condition.message == (
            "spec.accelerator.topology: 4x4 has 16 chips, 4 per host: it needs 4 training replicas "
            "(chief and workers), not 3; set replicaSpecs.worker.replicas to 4"
        )
