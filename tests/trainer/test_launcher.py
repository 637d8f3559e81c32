"""Restart in place with real TensorFlow: launchers stay, the work goes on, nothing is lost or computed twice."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from loopback import free_ports
from support.waiting import eventually_true
from trainer.cluster import Job, Replica, image_entrypoint
from trainer.conftest import SHORT
from trainer.outcome import tensors

STRATEGY = "MultiWorkerMirrored"


def launched(folder: Path) -> Job:
    """Two workers that are started as the image starts them; the arguments are SHORT's."""
    return Job(folder, strategy=STRATEGY, arguments=SHORT, program=image_entrypoint(), exports=False)


def start(job: Job, *names: str, environ: Mapping[str, str] | None = None) -> None:
    """Starts all tasks, or those named, each with a status port, which reports progress to the launcher."""
    for (role, index), port in zip(job.tasks, free_ports(len(job.tasks)), strict=True):
        if not names or f"{role}-{index}" in names:
            job.start(f"{role}-{index}", environ={"DTJ_STATUS_PORT": str(port), **(environ or {})})


def trainer_of(replica: Replica) -> int:
    """The process that trains, below its launcher."""
    children = Path(f"/proc/{replica.process.pid}/task/{replica.process.pid}/children").read_text().split()
    (child,) = (int(pid) for pid in children)
    return child


def lose_pod(job: Job, name: str, survivor: Replica) -> None:
    """Kills a launcher in a job that is held, lets the job go, and waits until the survivor starts again in place."""
    lost = job[name]
    trainer = trainer_of(lost)
    lost.kill()
    lost.wait()
    job.let_go()
    eventually_true(lambda: not Path(f"/proc/{trainer}/cwd").exists())  # its trainer dies with it
    survivor.wait_for("a peer was lost .*: starting again in place")


def same_bits(job: Job, other: Job) -> bool:
    """Whether both ended with the same weights and optimizer."""
    return tensors(job.checkpoints / "ckpt-90") == tensors(other.checkpoints / "ckpt-90")


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_two_workers_go_on_to_the_same_bits_after_one_process_was_killed(
    folder: Path, together: Job, victim: str
) -> None:
    with launched(folder) as job:
        job.hold_at(30)
        start(job)
        job.wait_for_checkpoint(30)
        for file in job.checkpoints.glob("ckpt-30*"):
            file.unlink()
        os.kill(trainer_of(job[victim]), signal.SIGKILL)
        job.let_go()
        assert job.wait() == {"worker-0": 0, "worker-1": 0}
        for name, replica in job.replicas.items():
            printed = "killed from outside" if name == victim else "a peer was lost"
            replica.wait_for(rf"dtj-launch: {printed} .*: starting again in place, at once; the 1st time")
        job["worker-0"].wait_for("resumed: step 20 of 90")
        spent = json.loads(job["worker-0"].last_words)["progress"]
        assert (spent["firstStep"], spent["repeatedSteps"]) == (0, 10)
        assert {"starting", "training", "checkpointing", "recovering", "repeated"} <= spent["seconds"].keys()
    assert same_bits(job, together)


def test_where_a_pod_is_replaced_alone_those_that_saved_with_it_wait_for_the_next(folder: Path, together: Job) -> None:
    scope = {"DTJ_RESTART_SCOPE": "Pod"}
    with launched(folder) as job:
        job.hold_at(30)
        start(job, environ=scope)
        job.wait_for_checkpoint(30)
        gone, survivor = job["worker-1"], job["worker-0"]
        gone.kill(signal.SIGTERM)
        job.let_go()
        assert gone.wait() == 42
        survivor.wait_for("a peer was asked to stop, and all have saved .*: starting again in place")
        start(job, "worker-1", environ=scope)
        assert job.wait() == {"worker-0": 0, "worker-1": 0}
        assert job["worker-0"] is survivor
    assert same_bits(job, together)


def test_parameter_servers_and_workers_come_back_in_their_place_without_tensorflow_in_their_launchers(
    folder: Path,
) -> None:
    roles = {"chief": 1, "worker": 1, "ps": 1}
    arguments = ["--epochs=12", "--batch-size=48", "--checkpoint-every-steps=20"]
    with Job(folder, strategy="ParameterServer", roles=roles, arguments=arguments, program=image_entrypoint()) as job:
        job.hold_at(20)
        start(job)
        job.wait_for_checkpoint(20)
        assert job["ps-0"].own_memory < 60 * 2**20, "the launcher of a server is small"
        os.kill(trainer_of(job["ps-0"]), signal.SIGKILL)
        job.let_go()
        assert job["chief-0"].wait() == 0
        job["ps-0"].wait_for("killed from outside (.|\n)*ps 0: serving")
        job["chief-0"].wait_for(r"a peer was lost .*: starting again in place(.|\n)*resumed: step \d+")
        assert job["worker-0"].log.count("worker 0: serving") == 1
