"""Real training in real pods: the trainer's image, cluster DNS, and an operator that helm installed."""

from __future__ import annotations

from datetime import datetime

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject
from patience import PATIENCE_SECONDS
from support.cluster_jobs import ClusterJobs, example, training
from support.installation import Installation
from testbed.processes import wait_until

CHECKPOINT: JsonObject = {"claimTemplate": CLAIM_TEMPLATE, "everySteps": 20}
LONG = "--epochs=30"
"""Long enough for a test to do something in the middle."""


class TestStrategies:
    def test_two_workers_train_the_example_that_the_readme_applies(self, jobs: ClusterJobs, trainer_image: str) -> None:
        jobs.submit(example("digits", image=trainer_image))
        jobs.await_condition("digits", "Complete")
        log = jobs.log("digits-worker-0")
        assert "replicas 2" in log
        assert _accuracy(log) > 0.9
        print(f"from apply to the first step: {_seconds_to_first_step(jobs):.0f} s")

    def test_a_chief_a_worker_and_an_evaluator_train_together(self, jobs: ClusterJobs, trainer_image: str) -> None:
        jobs.submit(example("digits-evaluator", image=trainer_image))
        jobs.await_log("digits-evaluated-evaluator-0", "held-out")
        jobs.await_condition("digits-evaluated", "Complete")
        assert _accuracy(jobs.log("digits-evaluated-chief-0")) > 0.9
        exported = jobs.job("digits-evaluated")["status"]["export"]
        assert (exported["path"], exported["formats"]) == ("/dtj/checkpoint/export/1", ["SavedModel"])
        assert exported["digest"] in jobs.log("digits-evaluated-chief-0")

    def test_a_namespace_that_is_locked_down_trains_too(self, locked_jobs: ClusterJobs, trainer_image: str) -> None:
        """With the Pod Security Standard "restricted"; the job has a NetworkPolicy as long as it has pods."""
        locked_jobs.submit(training("locked", "--epochs=2", image=trainer_image, roles={"worker": 2}))

        def policies() -> list[str]:
            return locked_jobs.kubectl("get", "networkpolicies", "-o", "name").split()

        # Its pods take seconds to start, and a job of two epochs may be over when they are seen to train.
        wait_until(lambda: "locked-worker-0" in locked_jobs.pods(), what="the pods")
        assert policies() == ["networkpolicy.networking.k8s.io/locked"]
        locked_jobs.await_condition("locked", "Complete")
        wait_until(lambda: policies() == [], what="the end of the NetworkPolicy")


class TestDisturbances:
    def test_training_resumes_from_its_checkpoint_when_the_pod_of_a_worker_is_deleted(
        self, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        jobs.submit(training("resumes", LONG, image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT))
        jobs.await_step("resumes-worker-0")
        jobs.kubectl("delete", "pod", "resumes-worker-1", "--wait=false")
        jobs.await_log("resumes-worker-0-r1", "resumed")
        jobs.await_condition("resumes", "Complete")
        assert jobs.job("resumes")["status"]["attempt"] == 2
        assert "resumes-worker-1" not in jobs.pods()

    def test_the_chief_of_parameter_servers_comes_back_alone_and_resumes_from_the_checkpoint(
        self, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        """With another address under its name, to servers that knew the one before."""
        roles = {"chief": 1, "worker": 2, "ps": 1}
        body = training(
            "headed", "--epochs=15", image=trainer_image, strategy="ParameterServer", roles=roles, checkpoint=CHECKPOINT
        )
        jobs.submit(body)
        jobs.await_log("headed-chief-0", "loss")
        servers = {name: uid for name, uid in jobs.uids().items() if "chief" not in name}
        jobs.kubectl("delete", "pod", "headed-chief-0", "--wait=false")
        jobs.await_log("headed-chief-0-r1", "resumed")
        assert servers.items() <= jobs.uids().items()
        jobs.await_condition("headed", "Complete")
        assert _accuracy(jobs.log("headed-chief-0-r1")) > 0.9
        status = jobs.job("headed")["status"]
        assert status["attempt"] == 1
        assert status["restarts"]["total"] == 1

    def test_workers_come_and_go_and_the_pods_of_the_others_stay(self, jobs: ClusterJobs, trainer_image: str) -> None:
        """A quota keeps a lost worker from coming back for a while."""

        def trains_with(replicas: int, *, times: int) -> None:
            wait_until(
                lambda: jobs.log("grows-worker-0").count(f"replicas {replicas} ") == times,
                what=f"the training with {replicas} workers",
            )

        elastic = {"maxReplicas": 3, "shrinkAfterSeconds": 3}
        long = "--epochs=100000"
        jobs.submit(
            training("grows", long, image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT, elastic=elastic)
        )
        jobs.await_step("grows-worker-0")
        first = jobs.uids()
        wait_until(
            lambda: jobs.job("grows")["status"].get("progress", {}).get("world") == 0, what="the launcher's word"
        )
        jobs.kubectl("scale", "dtj/grows", "--replicas=3")
        trains_with(3, times=1)
        hard: JsonObject = {"spec": {"hard": {"pods": 2}}}
        jobs.submit({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, **hard})
        jobs.kubectl("delete", "pod", "grows-worker-1", "--wait=false")
        trains_with(2, times=2)
        jobs.kubectl("delete", "resourcequota", "few")
        trains_with(3, times=2)
        assert "grows-worker-1-r1" in jobs.pods()
        jobs.kubectl("scale", "dtj/grows", "--replicas=1")
        trains_with(1, times=1)
        wait_until(lambda: list(jobs.pods()) == ["grows-worker-0"], what="the end of the surplus pods")
        assert jobs.uids()["grows-worker-0"] == first["grows-worker-0"]
        status = jobs.job("grows")["status"]
        assert (status["attempt"], status["restarts"]["total"]) == (1, 1)
        assert "preempted: all tasks saved step" in jobs.log("grows-worker-0")
        resumed = [int(line.split()[2]) for line in jobs.log("grows-worker-0").splitlines() if "resumed: step" in line]
        assert resumed == sorted(resumed)

    def test_a_job_that_is_suspended_saves_and_goes_on_when_it_is_resumed(
        self, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        """And is deleted a second after its end, as it asks for at last."""
        jobs.submit(training("rests", LONG, image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT))
        jobs.await_step("rests-worker-0")
        jobs.suspend("rests", suspend=True)
        jobs.await_condition("rests", "Suspended")
        wait_until(lambda: jobs.pods() == {}, what="the end of the pods")
        assert "startTime" not in jobs.job("rests")["status"]
        jobs.suspend("rests", suspend=False)
        jobs.await_log("rests-worker-0-r1", "resumed")
        assert jobs.job("rests")["status"].get("restarts", {}).get("total", 0) == 0
        patch = '{"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}}'
        jobs.kubectl("patch", "dtj/rests", "--type=merge", f"--patch={patch}")
        wait_until(lambda: jobs.kubectl("get", "dtj", "-o", "name") == "", what="its removal")

    def test_the_pods_train_on_while_the_operator_is_gone(
        self, operator: Installation, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        jobs.submit(training("goes-on", LONG, image=trainer_image, roles={"worker": 2}))
        jobs.await_step("goes-on-worker-0")
        before = jobs.uids()
        for pod in operator.pods():
            operator.kill(pod)
        jobs.await_condition("goes-on", "Complete")
        assert before.items() >= jobs.uids().items()


def test_helm_test_gets_the_operators_answer(operator: Installation) -> None:
    assert "Succeeded" in operator.helm.run(
        "test", "dtj", "--namespace=dtj-system", f"--timeout={PATIENCE_SECONDS:.0f}s"
    )


def _accuracy(log: str) -> float:
    (line,) = [line for line in log.splitlines() if line.startswith("held-out: accuracy")]
    return float(line.split()[2])


def _seconds_to_first_step(jobs: ClusterJobs) -> float:
    """From the job's creation to the first line of progress, by the clocks of API server and node."""
    lines = jobs.kubectl("logs", "digits-worker-0", "--timestamps").splitlines()
    first = next(line.split()[0] for line in lines if " step " in line)
    created = jobs.job("digits")["metadata"]["creationTimestamp"]
    return (_time(first) - _time(created)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text[:19] + "+00:00")
