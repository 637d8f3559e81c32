"""Jobs that Kueue admits: they wait in its queue, run where it admits them to, and give their quota back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Reason
from dtj.core.actions import CreateGang, ReadFlavors
from dtj.core.observed import Flavor, Phase
from dtj.core.status import format_time
from support.gang_worlds import KUEUE, admit, kueue_condition, world
from world import World

pytestmark = pytest.mark.unit


def conditions(story: World) -> dict[str, str]:
    """Status and reason of each condition of the Workload, by type."""
    assert story.gang is not None
    found = objects(story.gang.status.get("conditions"))
    return {str(one["type"]): f"{one['status']}/{one['reason']}" for one in found}


def evict(story: World, reason: str) -> None:
    """Kueue wants the quota back; the pods stop, and are gone."""
    assert story.gang is not None
    kept = [one for one in objects(story.gang.status.get("conditions")) if one["type"] != "Evicted"]
    story.kueue_says({**story.gang.status, "conditions": [*kept, kueue_condition("Evicted", reason=reason)]})
    story.settle()
    story.finish_deletions()
    story.settle()


class TestKueue:
    def queued(self, *, elastic: object = None) -> World:
        story = world(KUEUE, gang="Kueue", queue="team-a", elastic=elastic)
        story.settle()
        return story

    def running(self) -> World:
        story = self.queued()
        admit(story)
        story.settle()
        story.run_all()
        story.settle()
        return story

    def test_nothing_is_created_before_the_job_is_admitted(self) -> None:
        story = self.queued()
        assert not story.pods
        assert story.service is None
        assert story.job.status.state == "Suspended"
        assert story.job.status.reason == "Queued"

    def test_why_it_waits_is_reported_in_kueues_words(self) -> None:
        story = self.queued()
        story.kueue_says(
            {"conditions": [kueue_condition("QuotaReserved", "False", message="insufficient quota for cpu")]}
        )
        story.advance(60)
        story.settle()
        condition = story.job.status.condition(Condition.SUSPENDED)
        assert condition is not None
        assert condition.message == "Kueue: insufficient quota for cpu"

    def test_a_template_that_the_server_refuses_is_not_queued(self) -> None:
        story = world(KUEUE, gang="Kueue", queue="team-a")
        story.template_errors = ("worker: spec.containers[0].image: Required value",)
        story.settle()
        assert story.gang is None
        assert story.is_true(Condition.INVALID)

    def test_an_admitted_job_runs_where_its_flavor_is(self) -> None:
        story = self.queued()
        toleration: JsonObject = {"key": "spot", "operator": "Exists"}
        story.known_flavors = {"spot": Flavor({"pool": "spot"}, (toleration,))}
        admit(story, cpu="spot", memory="spot")
        story.settle()
        assert len(story.taken(ReadFlavors)) == 1
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"pool": "spot"}
        assert dig(pod, "spec", "tolerations") == [toleration]
        assert [emit.reason for emit in story.events][-2:] == ["Admitted", "PodsCreated"]
        assert not story.is_true(Condition.SUSPENDED)

    def test_what_admission_checks_ask_for_is_done(self) -> None:
        story = self.queued()
        admit(story)
        update: JsonObject = {
            "name": "worker",
            "nodeSelector": {"reservation": "r1"},
            "annotations": {"provisioned-by": "pr1"},
        }
        assert story.gang is not None
        story.kueue_says({**story.gang.status, "admissionChecks": [{"name": "prov", "podSetUpdates": [update]}]})
        story.settle()
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"reservation": "r1"}
        assert dig(pod, "metadata", "annotations", "provisioned-by") == "pr1"

    def test_an_evicted_job_saves_gives_its_quota_back_and_waits_again(self) -> None:
        story = self.running()
        assert story.gang is not None
        evicted = kueue_condition(
            "Evicted", reason="Preempted", message="preempted to accommodate a higher priority Workload"
        )
        story.kueue_says(
            {
                **story.gang.status,
                "conditions": [kueue_condition("QuotaReserved"), kueue_condition("Admitted"), evicted],
            }
        )
        story.settle()
        assert all(pod.terminating for pod in story.pods.values())
        assert story.gang.status.get("admission") is not None, "quota is given back when the pods are gone, not before"
        story.finish_deletions()
        story.settle()
        assert story.gang.status.get("admission") is None
        conditions = story.gang.status["conditions"]
        assert isinstance(conditions, list)
        found = {str(dig(one, "type")): dig(one, "status") for one in conditions}
        assert found == {
            "QuotaReserved": "False",
            "Admitted": "False",
            "Evicted": "True",
            "Requeued": "True",
            "PodsReady": "False",
        }
        assert story.job.status.state == "Suspended"
        assert story.job.status.restarts.total == 0

    def test_a_job_that_is_admitted_again_goes_on_as_a_new_attempt(self) -> None:
        story = self.running()
        assert story.gang is not None
        story.kueue_says(
            {**story.gang.status, "conditions": [kueue_condition("QuotaReserved"), kueue_condition("Evicted")]}
        )
        story.settle()
        story.finish_deletions()
        story.settle()
        admit(story)
        story.settle()
        assert story.job.status.attempt == 2
        assert sorted(story.pods) == ["digits-worker-0-r1", "digits-worker-1-r1", "digits-worker-2-r1"]
        assert len(story.taken(CreateGang)) == 1

    def test_a_deactivated_workload_stops_the_job_and_says_how_to_go_on(self) -> None:
        story = self.running()
        assert story.gang is not None
        story.gang = replace(story.gang, active=False)
        story.settle()
        story.finish_deletions()
        story.settle()
        condition = story.job.status.condition(Condition.SUSPENDED)
        assert condition is not None
        assert "spec.active" in condition.message

    def test_a_workload_that_is_deleted_sends_the_job_back_into_the_queue(self) -> None:
        story = self.running()
        story.gang = None
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.gang is not None
        assert not story.pods

    def test_a_job_that_ends_has_a_finished_workload(self) -> None:
        story = self.running()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle()
        assert "Finished" not in conditions(story), "its other pods still hold quota"
        story.finish_deletions()
        story.settle()
        assert conditions(story)["Finished"] == "True/Succeeded"
        assert story.job.status.state == "Succeeded"

    def test_a_workload_is_finished_by_the_next_operator_too(self) -> None:
        story = self.running()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        while not story.job.status.terminal:
            story.step()
            story.finish_deletions()
        assert "Finished" not in conditions(story)
        story.operator_restarts()
        story.settle()
        assert conditions(story)["Finished"] == "True/Succeeded"

    def test_a_job_that_fails_in_the_queue_has_a_finished_workload(self) -> None:
        policy = {"activeDeadlineSeconds": 60, "scheduling": {"gang": "Kueue", "queue": "team-a"}}
        story = World(job(roles={"worker": 3}, runPolicy=policy), installed=(KUEUE,))
        story.settle()
        admit(story)
        story.settle()
        story.advance(61)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert conditions(story)["Finished"] == "True/Failed"

    def test_another_number_of_workers_is_asked_for_again(self) -> None:
        story = self.queued(elastic={"maxReplicas": 5})
        scheduling = {"gang": "Kueue", "queue": "team-a"}
        scaled = job(roles={"worker": 5}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": scheduling})
        story.job = replace(story.job, spec=scaled.spec, raw_spec=scaled.raw_spec, generation=2)
        story.settle()
        assert [dig(body, "spec", "podSets", 0, "count") for body in story.gang_manifests] == [3, 5]

    def test_a_job_that_waits_may_change_its_queue(self) -> None:
        story = self.queued()
        message = "LocalQueue team-a doesn't exist"
        story.kueue_says({"conditions": [kueue_condition("QuotaReserved", "False", message=message)]})
        story.advance(60)
        story.settle()
        condition = story.job.status.condition(Condition.SUSPENDED)
        assert condition is not None
        assert condition.message.endswith(
            "doesn't exist: create it, or set another LocalQueue in runPolicy.scheduling.queue"
        )
        moved = job(roles={"worker": 3}, runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-b"}})
        story.job = replace(story.job, spec=moved.spec, raw_spec=moved.raw_spec, generation=2)
        story.settle()
        assert [dig(body, "spec", "queueName") for body in story.gang_manifests] == ["team-a", "team-b"]

    def test_a_job_that_runs_stays_where_it_was_admitted(self) -> None:
        story = self.running()
        moved = job(roles={"worker": 3}, runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-b"}})
        story.job = replace(story.job, spec=moved.spec, raw_spec=moved.raw_spec, generation=2)
        story.settle()
        assert story.job.status.state == "Running"
        assert len(story.gang_manifests) == 1

    def test_the_start_deadline_counts_from_admission(self) -> None:
        body = job(
            roles={"worker": 3},
            runPolicy={"startDeadlineSeconds": 60, "scheduling": {"gang": "Kueue", "queue": "team-a"}},
        )
        story = World(body, installed=(KUEUE,))
        story.settle()
        story.advance(600)
        story.settle()
        admit(story)
        story.settle()
        story.advance(59)
        story.settle()
        assert story.job.status.state == "Starting"
        story.advance(2)
        story.settle()
        failed = story.job.status.condition(Condition.FAILURE_TARGET)
        assert failed is not None
        assert failed.reason == Reason.START_DEADLINE_EXCEEDED


class TestDuties:
    """What the owner of a Workload writes to it."""

    def running(self, **more: object) -> World:
        policy = {"scheduling": {"gang": "Kueue", "queue": "team-a"}}
        story = World(job(runPolicy=policy, **{"roles": {"worker": 3}, **more}), installed=(KUEUE,))  # type: ignore[arg-type]
        story.settle()
        admit(story)
        story.settle()
        story.run_all()
        story.settle()
        return story

    def test_pods_that_are_ready_are_reported(self) -> None:
        story = world(KUEUE, gang="Kueue", queue="team-a")
        story.settle()
        assert conditions(story) == {}, "a job that waits costs no write"
        admit(story)
        story.settle()
        assert conditions(story)["PodsReady"] == "False/WaitForStart"
        story.run_all()
        story.settle()
        assert conditions(story)["PodsReady"] == "True/Started"

    def test_a_lost_pod_is_a_recovery_to_wait_for(self) -> None:
        story = self.running(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.set_pod("worker-1", Phase.FAILED, exit_code=137)
        story.settle()
        assert conditions(story)["PodsReady"] == "False/WaitForRecovery"
        story.advance(60)
        story.settle()
        story.run_all()
        story.settle()
        assert conditions(story)["PodsReady"] == "True/Recovered"

    def test_the_pods_of_a_job_that_ends_are_not_lost(self) -> None:
        story = self.running()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle()
        assert conditions(story)["PodsReady"] == "True/Started"

    @pytest.mark.parametrize(
        ("reason", "requeued"),
        [
            ("Preempted", "True"),
            ("NodeFailures", "True"),
            ("PodsReadyTimeout", "False"),
            ("ClusterQueueStopped", "False"),
            ("AdmissionCheck", "False"),
            ("Deactivated", "False"),
        ],
    )
    def test_only_kueue_ends_a_back_off(self, reason: str, requeued: str) -> None:
        story = self.running()
        evict(story, reason)
        assert conditions(story)["Requeued"] == f"{requeued}/{reason}"
        assert conditions(story)["PodsReady"] == "False/WaitForStart"

    def test_the_time_of_execution_adds_up(self) -> None:
        story = self.running()
        assert story.gang is not None
        at = format_time(story.now)
        kept = [one for one in objects(story.gang.status.get("conditions")) if one["type"] != "Admitted"]
        admitted = {**kueue_condition("Admitted"), "lastTransitionTime": at}
        before: JsonObject = {**story.gang.status, "accumulatedPastExecutionTimeSeconds": 100}
        story.kueue_says({**before, "conditions": [*kept, admitted]})
        story.advance(30)
        evict(story, "Preempted")
        assert story.gang.status["accumulatedPastExecutionTimeSeconds"] == 130

    def test_completed_pods_give_their_quota_back(self) -> None:
        story = self.running(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.set_pod("worker-1", Phase.SUCCEEDED)
        story.settle()
        assert story.gang is not None
        assert story.gang.status["reclaimablePods"] == [{"name": "worker", "count": 1}]

    def test_a_restart_of_pods_that_gave_their_quota_back_waits_in_the_queue(self) -> None:
        story = self.running(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.set_pod("worker-1", Phase.SUCCEEDED)
        story.settle()
        story.set_pod("ps-0", Phase.FAILED, exit_code=137)
        for _ in range(5):
            story.settle()
            story.finish_deletions()
            story.advance(60)
        assert story.job.status.state == "Suspended"
        assert story.gang is not None
        assert "reclaimablePods" not in story.gang.status
        assert not [pod for pod in story.pods.values() if not pod.ended]
        assert len(story.taken(CreateGang)) == 2
