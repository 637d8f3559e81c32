"""What the trainer's image offers, in real pods: own scripts, submitted code, restarts in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE, manifest
from support.cluster_jobs import ClusterJobs, training
from testbed import NodeCluster

CHECKPOINT = {"claimTemplate": CLAIM_TEMPLATE, "everySteps": 20}
SAVED_STEPS = 40
"""A replica that reports this many steps has saved a checkpoint, so a killed one can continue from there."""

KILL_THE_TRAINING = (
    "import os, signal; "
    "inside = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in (1, os.getpid())]; "
    "[os.kill(pid, signal.SIGKILL) for pid in inside if b'dtj' in open(f'/proc/{pid}/cmdline', 'rb').read()]"
)
"""Every process of the trainer's but the launcher, which is process 1."""


def test_a_pod_of_a_restricted_namespace_runs_the_code_that_was_submitted(
    locked_jobs: ClusterJobs, trainer_image: str, tmp_path: Path
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "words.py").write_text("WORDS = 'this is the submitted code'\n")
    (tmp_path / "train.py").write_text(
        "import os\nfrom package.words import WORDS\n"
        "with open('written.txt', 'w') as file:\n    print(WORDS, file=file)\n"
        "print(open('written.txt').read(), 'in', os.getcwd(), 'of', sorted(os.listdir()))\n"
    )
    container = {"name": "trainer", "image": trainer_image, "args": ["--script=train.py"]}
    template = {"spec": {"containers": [container]}}
    body = manifest("coded", strategy="OneDevice", roles={"worker": 1}, template=template)
    locked_jobs.submit_with_code(body, tmp_path)
    locked_jobs.await_condition("coded", "Complete")
    log = locked_jobs.log("coded-worker-0")
    assert "this is the submitted code\n in /code of ['package', 'train.py', 'written.txt']" in log
    locked_jobs.delete("coded")


class TestRestartsInPlace:
    def test_a_killed_process_costs_no_pod_and_no_attempt(self, jobs: ClusterJobs, trainer_image: str) -> None:
        jobs.submit(
            training("in-place", "--epochs=40", image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT)
        )
        jobs.await_step("in-place-worker-0", least=SAVED_STEPS)
        before = jobs.uids()
        jobs.kubectl("exec", "in-place-worker-1", "--", "python", "-c", KILL_THE_TRAINING)
        jobs.await_log("in-place-worker-0", "resumed")
        assert jobs.uids() == before
        jobs.await_condition("in-place", "Complete")
        status = jobs.job("in-place")["status"]
        assert status["attempt"] == 1
        assert status.get("restarts", {}).get("total", 0) == 0

    def test_pods_that_the_network_parts_find_out_and_meet_again_in_place(
        self, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        if not isinstance(jobs.cluster, NodeCluster):
            pytest.skip("only the network of the testbed's own node can be cut")
        jobs.submit(training("parted", "--epochs=40", image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT))
        jobs.await_step("parted-worker-0", least=SAVED_STEPS)
        before = jobs.uids()
        one, other = (pod["status"]["podIP"] for pod in jobs.pods().values())
        with jobs.cluster.machine.parted(one, other):
            for name in before:
                jobs.await_log(name, "starting again in place")
        jobs.await_log("parted-worker-0", "resumed")
        assert jobs.uids() == before
        jobs.await_condition("parted", "Complete")
        status = jobs.job("parted")["status"]
        assert (status["attempt"], status["restarts"]["total"]) == (1, 0)

    def test_only_the_pod_that_was_deleted_is_replaced_where_the_scope_is_the_pod(
        self, jobs: ClusterJobs, trainer_image: str
    ) -> None:
        policy = {"restartScope": "Pod"}
        jobs.submit(
            training(
                "mended", "--epochs=40", image=trainer_image, roles={"worker": 2}, checkpoint=CHECKPOINT,
                runPolicy=policy,
            )
        )  # fmt: skip
        jobs.await_step("mended-worker-0")
        survivor = jobs.uids()["mended-worker-0"]
        jobs.kubectl("delete", "pod", "mended-worker-1", "--wait=false")
        jobs.await_log("mended-worker-0", "resumed")
        jobs.await_condition("mended", "Complete")
        assert jobs.uids()["mended-worker-0"] == survivor
        status = jobs.job("mended")["status"]
        assert status["attempt"] == 1
        assert status["restarts"]["total"] == 1
