"""How a job of ours begins, gives quota back and is stopped, as the real Kueue sees it; how it ends, see the table of
test_kueue_changes.py."""

from __future__ import annotations

import pytest

from builders import priority_class
from dtj.api import kueue
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition
from support.kueue_queues import Queues

pytestmark = pytest.mark.usefixtures("operator")


def suspended_because(queues: Queues, words: str, name: str = "digits") -> None:
    """Wait until the job reports these words of Kueue's."""

    def reported() -> None:
        condition = queues.world.condition(Condition.SUSPENDED, name)
        assert words in condition.message, condition

    queues.world.eventually(reported)


class TestQuota:
    def test_a_completed_pod_gives_its_quota_to_the_next_job(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit(workers=2, strategy="ParameterServer", roles={"chief": 1, "ps": 1})
        world = queues.world
        world.await_running("chief-0", "ps-0", "worker-0", "worker-1")
        queues.submit("small", workers=1)
        queues.await_message("QuotaReserved", "insufficient", "small")
        world.end_pod("digits-worker-1", exit_code=0)
        world.await_pods(["worker-0"], "small")

    def test_a_job_of_higher_priority_gets_the_quota_when_the_pods_are_gone(self, queues: Queues) -> None:
        world = queues.world
        world.plane.apply(priority_class("neighbours-urgent"))
        queues.make("gpus", cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
        queues.submit("old")
        queues.run("old")
        world.hold_pods("old")  # as a save of a checkpoint does
        queues.submit("new", scheduling={"priorityClassName": "neighbours-urgent"})
        queues.await_condition("Evicted", "True/Preempted", "old")
        suspended_because(queues, "preempt", "old")
        queues.await_used("gpus", 2)
        assert world.pods("new") == {}, "the old pods still run"
        world.hold_pods("old", hold=False)
        queues.run("new")
        queues.await_condition("Requeued", "True/Preempted", "old")
        world.end_pod("new-worker-0", exit_code=0)
        world.await_state("Succeeded", "new")
        queues.run("old", suffix="-r1")
        assert world.job("old").status.restarts.total == 0

    def test_a_job_of_a_higher_workload_priority_class_is_admitted_first(self, queues: Queues) -> None:
        for name, value in ("neighbours-high", 1000), ("neighbours-low", 10):
            queues.make_priority_class(name, value)
        queues.make("gpus", cpus=2)
        queues.submit("before")
        queues.run("before")
        labels: JsonObject = {kueue.QUEUE: "gpus", kueue.PRIORITY_CLASS: "neighbours-low"}
        queues.submit_labelled(labels, "first")
        queues.await_message("QuotaReserved", "insufficient", "first")
        queues.submit_labelled({**labels, kueue.PRIORITY_CLASS: "neighbours-none"}, "second")
        suspended_because(queues, "create the class, or change the label", "second")
        queues.submit_labelled({**labels, kueue.PRIORITY_CLASS: "neighbours-high"}, "second")
        queues.await_message("QuotaReserved", "insufficient", "second")
        spec = queues.workload("second") or {}
        assert dig(spec, "spec", "priority") == 1000
        assert dig(spec, "spec", "priorityClassRef", "name") == "neighbours-high"
        queues.world.end_pod("before-worker-0", exit_code=0)
        queues.run("second")
        assert queues.world.pods("first") == {}

    def test_an_elastic_job_begins_with_as_many_workers_as_the_quota_has(self, queues: Queues) -> None:
        queues.make("gpus", cpus=3)
        queues.submit("small", workers=1)
        queues.run("small", workers=1)
        queues.submit("large", workers=4, elastic={"minReplicas": 2, "maxReplicas": 4})
        queues.run("large", workers=2)
        queues.await_used("gpus", 3)
        assert queues.world.job("large").status.ready == "2/2"
        queues.world.end_pod("large-worker-0", exit_code=0)
        queues.await_condition("Finished", "True/Succeeded", "large")
        queues.submit("next", workers=4, elastic={"minReplicas": 3, "maxReplicas": 4})
        queues.await_message("QuotaReserved", "insufficient", "next")
        queues.world.end_pod("small-worker-0", exit_code=0)
        queues.run("next", workers=3)

    def test_what_a_queue_lent_is_taken_back_by_its_owner(self, queues: Queues) -> None:
        queues.make("lender", cpus=2, cohort="all", preemption={"reclaimWithinCohort": "Any"})
        queues.make("borrower", cpus=0, cohort="all")
        queues.submit("guest", queue="borrower")
        queues.run("guest")
        queues.submit("owner", queue="lender")
        queues.await_condition("Evicted", "True/Preempted", "guest")
        queues.run("owner")
        queues.await_used("borrower", 0)


class TestAdmission:
    def test_pods_wait_for_admission_checks_and_go_where_these_and_the_flavor_send_them(self, queues: Queues) -> None:
        toleration: JsonObject = {"key": "example.com/spot", "operator": "Exists"}
        flavor: JsonObject = {"nodeLabels": {"example.com/pool": "spot"}, "tolerations": [toleration]}
        queues.create("ResourceFlavor", "flavor", flavor)
        check = queues.create("AdmissionCheck", "check", {"controllerName": "example.com/provisioner"})
        queues.answer_check(check)
        queues.make("gpus", cpus=2, check=check)
        queues.submit()
        queues.await_condition("QuotaReserved", "True")
        assert queues.world.pods() == {}, "the check has not answered"
        update: JsonObject = {"name": "worker", "nodeSelector": {"example.com/reservation": "r1"}}
        queues.answer_check(check, workload="digits", podSetUpdates=[update])
        queues.run()
        for pod in queues.world.pods().values():
            assert dig(pod, "spec", "nodeSelector") == {"example.com/pool": "spot", "example.com/reservation": "r1"}
            assert toleration in objects(dig(pod, "spec", "tolerations"))


class TestStoppedQueues:
    def test_a_queue_on_hold_lets_jobs_finish_and_none_begin(self, queues: Queues) -> None:
        queues.make("gpus", cpus=4)
        queues.submit("before")
        queues.run("before")
        queues.stop("gpus", "Hold")
        queues.submit("after")
        suspended_because(queues, "inactive", "after")
        assert queues.world.job("before").status.state == "Running"
        queues.stop("gpus", "None")
        queues.run("after")

    def test_a_workload_that_was_deactivated_goes_on_when_it_is_active_again(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        queues.submit()
        queues.run()
        queues.change({"active": False})
        queues.world.await_pods([])
        suspended_because(queues, "set spec.active of the Workload to true")
        queues.await_condition("Requeued", "False/Deactivated")
        queues.change({"active": True})
        queues.run(suffix="-r1")


class TestLabels:
    def test_a_job_that_others_gate_waits_until_they_let_it_go(self, queues: Queues) -> None:
        queues.make("gpus", cpus=2)
        seconds = f"{kueue.PROVISIONING_PREFIX}maxRunDurationSeconds"
        gate: JsonObject = {kueue.ADMISSION_GATE: "example.com/budget", seconds: "60"}
        queues.submit_labelled({kueue.QUEUE: "gpus"}, annotations=gate)
        suspended_because(queues, "gated by: example.com/budget")
        assert dig(queues.workload() or {}, "metadata", "annotations", seconds) == "60"
        queues.world.annotate({kueue.ADMISSION_GATE: None})
        queues.run()
        labels = dig(queues.world.pods()["digits-worker-0"], "metadata", "labels")
        assert isinstance(labels, dict)
        assert labels["kueue.x-k8s.io/cluster-queue-name"] == f"{queues.prefix}-gpus"

    def test_a_job_whose_time_of_execution_is_over_stops_and_goes_on_when_it_is_active_again(
        self, queues: Queues
    ) -> None:
        queues.make("gpus", cpus=2)
        queues.submit_labelled({kueue.QUEUE: "gpus", kueue.MAX_EXECUTION_SECONDS: "3"})
        queues.await_condition("Evicted", "True/Deactivated")
        queues.world.await_pods([])
        suspended_because(queues, "set spec.active of the Workload to true")
        queues.await_used("gpus", 0)
        queues.change({"active": True})
        queues.await_condition("Requeued", "True/Reactivated")
