"""Jobs that Kueue admits: they wait in its queue, run where it admits them to, and give their quota back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import CreateGang, ReadFlavors, ReleaseQuota
from dtj.core.observed import Flavor, Phase
from support.gang_worlds import KUEUE, admit, kueue_condition, world
from world import World

pytestmark = pytest.mark.unit


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

    def test_why_it_waits_is_said_in_kueues_words(self) -> None:
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
        assert not story.taken(ReleaseQuota), "quota is given back when the pods are gone, not before"
        story.finish_deletions()
        story.settle()
        assert story.gang.status.get("admission") is None
        conditions = story.gang.status["conditions"]
        assert isinstance(conditions, list)
        found = {str(dig(one, "type")): dig(one, "status") for one in conditions}
        assert found == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True", "Requeued": "True"}
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

    def test_a_job_that_ends_gives_its_quota_back(self) -> None:
        story = self.running()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.gang is None
        assert story.job.status.state == "Succeeded"

    def test_another_number_of_workers_is_asked_for_anew(self) -> None:
        story = self.queued(elastic={"maxReplicas": 5})
        scheduling = {"gang": "Kueue", "queue": "team-a"}
        scaled = job(roles={"worker": 5}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": scheduling})
        story.job = replace(story.job, spec=scaled.spec, raw_spec=scaled.raw_spec, generation=2)
        story.settle()
        assert [dig(body, "spec", "podSets", 0, "count") for body in story.gang_manifests] == [3, 5]

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
