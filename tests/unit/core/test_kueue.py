"""Jobs that Kueue admits: they wait in its queue, run where it admits them to, and give their quota back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api import kueue
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import ReadClusterQueue, ReadFlavors, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.manifests.tf_config import Cluster
from dtj.core.observed import Flavor, Phase
from support.gang_worlds import QUEUED, admit, admitted, evict, kueue_condition, queued, workload_conditions
from world import World


class TestKueue:
    def message(self, story: World) -> str:
        return story.condition(Condition.SUSPENDED).message

    def test_what_else_kueue_says_is_reported_once_a_minute(self) -> None:
        story = queued()
        for words, after, reported in ("2 more needed", 0, "2"), ("1 more needed", 0, "2"), ("1 more needed", 60, "1"):
            story.kueue_says({"conditions": [kueue_condition("QuotaReserved", "False", message=words)]})
            story.wait(after)
            assert self.message(story) == f"Kueue: {reported} more needed"

    def test_a_job_whose_pods_are_all_there_asks_for_no_flavor(self) -> None:
        story = admitted()
        admit(story, cpu="spot")
        story.known_flavors = {}
        story.operator_restarts()
        story.settle()
        assert story.job.status.state == "Running"

    def test_an_admitted_job_runs_where_its_flavor_is_each_time_it_is_admitted(self) -> None:
        story = queued()
        toleration: JsonObject = {"key": "spot", "operator": "Exists"}
        story.known_flavors = {"spot": Flavor({"pool": "old"}, (toleration,))}
        admit(story, cpu="spot", memory="spot")
        story.start()
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"pool": "old"}
        assert dig(pod, "spec", "tolerations") == [toleration]
        assert [emit.reason for emit in story.events][-2:] == ["Admitted", "PodsCreated"]
        assert not story.is_true(Condition.SUSPENDED)
        story.known_flavors = {"spot": Flavor({"pool": "new"})}
        story.wait(3600)
        assert len(story.taken(ReadFlavors)) == 1, "no pod is to be made"
        evict(story, "Preempted")
        admit(story, cpu="spot")
        story.settle()
        assert story.job.status.attempt == 2
        made = [body for name, body in story.manifests.items() if name.endswith("-r1")]
        assert [dig(pod, "spec", "nodeSelector") for pod in made] == [{"pool": "new"}] * 3
        assert len(story.taken(ReadFlavors)) == 2

    def test_what_admission_checks_ask_for_is_done(self) -> None:
        story = queued()
        admit(story)
        update: JsonObject = {
            "name": "worker",
            "nodeSelector": {"reservation": "r1"},
            "annotations": {"provisioned-by": "pr1"},
        }
        story.kueue_says({**story.the_gang.status, "admissionChecks": [{"name": "prov", "podSetUpdates": [update]}]})
        story.settle()
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"reservation": "r1"}
        assert dig(pod, "metadata", "annotations", "provisioned-by") == "pr1"

    def test_an_evicted_job_saves_gives_its_quota_back_and_waits_again(self) -> None:
        story = admitted()
        evicted = kueue_condition("Evicted", reason="Preempted")
        held = [kueue_condition("QuotaReserved"), kueue_condition("Admitted")]
        story.kueue_says({**story.the_gang.status, "conditions": [*held, evicted]})
        story.settle()
        assert all(pod.terminating for pod in story.pods.values())
        assert story.the_gang.status.get("admission") is not None, "quota is given back when the pods are gone"
        story.settle_deletions()
        assert story.the_gang.status.get("admission") is None
        assert {kind: found.partition("/")[0] for kind, found in workload_conditions(story).items()} == {
            "QuotaReserved": "False",
            "Admitted": "False",
            "Evicted": "True",
            "Requeued": "True",
            "PodsReady": "False",
        }
        assert story.job.status.state == "Suspended"
        assert story.job.status.restarts.total == 0

    def test_an_evicted_job_gives_its_quota_back_although_a_finalizer_keeps_its_ended_pods(self) -> None:
        story = admitted()
        evict(story, "Preempted", finalizers=True)
        assert len(story.pods) == 3
        assert workload_conditions(story)["QuotaReserved"] == "False/Pending"
        admit(story)
        story.settle()
        assert len([pod for pod in story.pods.values() if pod.attempt == 2]) == 3

    def test_an_evicted_job_that_waits_says_what_kueue_says_by_now(self) -> None:
        story = admitted()
        evicted = kueue_condition("Evicted", reason="Preempted", message="preempted by another Workload")
        story.kueue_says({**story.the_gang.status, "conditions": [kueue_condition("QuotaReserved"), evicted]})
        story.settle_deletions()
        assert self.message(story) == "Kueue: preempted by another Workload"
        waiting = kueue_condition("QuotaReserved", "False", message="insufficient unused quota, 2 more needed")
        story.kueue_says({**story.the_gang.status, "conditions": [waiting, evicted]})
        story.wait(60)
        assert self.message(story) == "Kueue: insufficient unused quota, 2 more needed"

    def test_a_deactivated_workload_stops_the_job_and_says_how_to_go_on(self) -> None:
        story = admitted()
        story.gang = replace(story.the_gang, active=False)
        story.settle_deletions()
        assert "spec.active" in story.condition(Condition.SUSPENDED).message

    def test_a_job_that_ends_has_a_finished_workload(self) -> None:
        story = admitted()
        story.sees("worker-0", Phase.SUCCEEDED)
        assert "Finished" not in workload_conditions(story), "its other pods still hold quota"
        story.settle_deletions()
        assert workload_conditions(story)["Finished"] == "True/Succeeded"
        assert story.job.status.state == "Succeeded"

    @pytest.mark.parametrize(
        ("message", "remedy"),
        [
            (
                "ClusterQueue all doesn't exist",
                "create it, or create the LocalQueue again with another spec.clusterQueue",
            ),
            (
                "workload namespace doesn't match ClusterQueue selector",
                "have spec.namespaceSelector of the ClusterQueue match the namespace; {} matches all",
            ),
            (
                "couldn't assign flavors to pod set worker: resource nvidia.com/gpu unavailable in ClusterQueue",
                "add the resource to spec.resourceGroups of the ClusterQueue",
            ),
            (
                "couldn't assign flavors to pod set worker: insufficient quota for cpu in flavor l4, previously "
                "considered podsets requests (0) + current podset request (3) > maximum capacity (2)",
                "request less, or raise nominalQuota of the ClusterQueue",
            ),
            ("LocalQueue team-a is inactive", "set spec.stopPolicy of the LocalQueue to None to go on"),
            (
                'couldn\'t assign flavors to pod set worker: Flavor "l4" does not contain the requested level',
                "name a level of the flavor's Topology in the annotations of the template, or add the level there",
            ),
            (
                'couldn\'t assign flavors to pod set worker: Flavor "l4" does not support TopologyAwareScheduling',
                "set spec.topologyName of the ResourceFlavor, or remove the annotations podset-*-topology of the "
                "template",
            ),
            ("ClusterQueue all is inactive", "correct what the condition Active of the ClusterQueue names"),
            ("LocalQueue team-a is stopped", "set spec.stopPolicy of the LocalQueue to None to go on"),
            ("The LocalQueue is stopped", "set spec.stopPolicy of the LocalQueue to None to go on"),
            ("The ClusterQueue is stopped", "set spec.stopPolicy of the ClusterQueue to None to go on"),
            ("ClusterQueue all is stopped", "set spec.stopPolicy of the ClusterQueue to None to go on"),
        ],
    )
    def test_a_queue_that_admits_no_job_is_named_with_what_to_do(self, message: str, remedy: str) -> None:
        story = queued()
        story.kueue_says({"conditions": [kueue_condition("QuotaReserved", "False", message=message)]})
        story.wait(60)
        assert story.condition(Condition.SUSPENDED).message == f"Kueue: {message}: {remedy}"

    @pytest.mark.parametrize(
        ("why", "remedy", "manager"),
        [
            ("references missing AdmissionCheck(s): none", "create or correct what this names", None),
            ("references missing AdmissionCheck(s): none", "create or correct what this names", kueue.MULTIKUEUE),
            ("is stopped", "set spec.stopPolicy of the ClusterQueue to None to go on", None),
        ],
    )
    def test_why_a_cluster_queue_is_inactive_is_asked_once_a_minute(
        self, why: str, remedy: str, manager: str | None
    ) -> None:
        story = queued(managedBy=manager)
        story.queue_words = f"Can't admit new workloads: {why}."
        inactive = kueue_condition("QuotaReserved", "False", message="ClusterQueue all is inactive")
        story.kueue_says({"conditions": [inactive]})
        story.settle()
        story.settle()
        assert len(story.taken(ReadClusterQueue)) == 1
        assert RequeueAfter(60.0) in story.step()
        assert self.message(story) == f"Kueue: ClusterQueue all is inactive: {why}: {remedy}"
        story.queue_words = "Can't admit new workloads: references missing ResourceFlavor(s): l4."
        story.wait(60)
        assert "ResourceFlavor(s): l4" in self.message(story)

    def test_an_admission_check_that_is_not_ready_is_named(self) -> None:
        story = queued()
        check: JsonObject = {"name": "prov", "state": "Pending", "message": "creating nodes"}
        story.kueue_says({"conditions": [kueue_condition("QuotaReserved")], "admissionChecks": [check]})
        story.wait(60)
        assert self.message(story) == "Kueue: admission check prov is Pending: creating nodes"

    def test_what_a_pass_costs_while_a_job_waits_does_not_grow_with_its_replicas(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        story = queued()

        def fails(replica: object, *_: object) -> str:
            raise AssertionError(f"{replica} is one of thousands")

        monkeypatch.setattr(Cluster, "_address", fails)
        monkeypatch.setattr(JobContext, "_new_name", fails)
        for conditions in ([], [kueue_condition("QuotaReserved")], [kueue_condition("QuotaReserved", "False")]):
            story.kueue_says({"conditions": [*conditions]})
            story.settle()

    def test_a_job_that_waits_may_change_its_queue(self) -> None:
        story = queued()
        message = "LocalQueue team-a doesn't exist"
        story.kueue_says({"conditions": [kueue_condition("QuotaReserved", "False", message=message)]})
        story.wait(60)
        assert story.condition(Condition.SUSPENDED).message.endswith(
            "doesn't exist: create it, or name another in the label kueue.x-k8s.io/queue-name; a job that names its "
            "queue in runPolicy.scheduling must be created again"
        )
        story.becomes(job(roles={"worker": 3}, runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-b"}}))
        assert [dig(body, "spec", "queueName") for body in story.gang_manifests] == ["team-a", "team-b"]

    def test_a_job_that_runs_stays_where_it_was_admitted(self) -> None:
        story = admitted()
        story.becomes(job(roles={"worker": 3}, runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-b"}}))
        assert story.job.status.state == "Running"
        assert len(story.gang_manifests) == 1

    def test_the_start_deadline_counts_from_admission(self) -> None:
        story = queued(runPolicy={**QUEUED, "startDeadlineSeconds": 60})
        story.wait(600)
        admit(story)
        story.settle()
        story.wait(59)
        assert story.job.status.state == "Starting"
        story.wait(2)
        assert story.condition(Condition.FAILURE_TARGET).reason == Reason.START_DEADLINE_EXCEEDED
