"""MultiWorkerMirrored by real processes: the same model as one process, and an end that all tasks share."""

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from dtj_launch.rendezvous import NO_HANDSHAKE, ReadinessListener, handshake
from trainer.cluster import SOON, Job, launched_once, run_interrupted_twice, stopped
from trainer.conftest import SHORT
from trainer.outcome import curves, tensors

STRATEGY = "MultiWorkerMirrored"
TWO = {"worker": 2}
ENDLESS = ("--epochs=100000", "--batch-size=48", "--checkpoint-every-steps=20")


def test_two_workers_learn_what_one_process_learns(alone: Job, together: Job) -> None:
    assert together.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)
    assert together.result["steps"] == alone.result["steps"] == 90
    assert "batch 48 global, 24 per replica  replicas 2" in together["worker-0"].log
    assert len(re.findall(r"^step \d+/90 ", together["worker-0"].log, re.M)) > 1
    assert "step" not in together["worker-1"].log
    assert together["worker-1"].log.endswith("worker 1: done\n")


def test_each_worker_leaves_its_last_report(together: Job) -> None:
    reports = [json.loads(replica.last_words)["progress"] for replica in together.replicas.values()]
    assert [(report["phase"], report["percent"]) for report in reports] == [("Done", 100)] * 2


def test_three_replicas_learn_what_one_process_learns(folder: Path, alone: Job) -> None:
    roles = {"chief": 1, "worker": 2, "evaluator": 1}
    with Job(folder, strategy=STRATEGY, roles=roles, arguments=SHORT, exports=False) as job:
        job.start()
        assert set(job.wait().values()) == {0}
    assert job.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)
    assert re.search(r"^step 90/90  held-out: accuracy 0\.\d{4}  loss ", job["evaluator-0"].log, re.M)
    assert curves(folder / "logs" / "evaluation")["held_out/accuracy"][-1] == 90
    assert "step 90/90 (100%)" in job["chief-0"].log


def test_a_preempted_and_then_killed_job_ends_with_the_same_bits(folder: Path, together: Job) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=SHORT, exports=False) as job:
        run_interrupted_twice(job)
    assert tensors(job.checkpoints / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_a_killed_worker_ends_the_other_as_peer_lost(folder: Path, victim: str) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(20)
        job[victim].kill()
        survivor = job["worker-1" if victim == "worker-0" else "worker-0"]
        assert survivor.wait(SOON) == 75
    assert survivor.last_words.startswith(f"peer lost: {victim.replace('-', ' ')} not reachable")
    assert "Traceback" not in survivor.log


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_a_silent_worker_is_lost_after_the_heartbeat_limit(folder: Path, victim: str) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(20)
        with stopped(job[victim]):
            survivor = job["worker-1" if victim == "worker-0" else "worker-0"]
            assert survivor.wait(SOON) == 75
    assert survivor.last_words.startswith("peer lost")


def test_a_worker_that_never_starts_is_named_and_waited_for_no_longer_than_asked(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=["--start-timeout=4"]) as job:
        waiting = job.start("worker-0")["worker-0"]
        assert waiting.wait() == 75
        address = job.cluster["worker"][1]
        assert re.search(rf"start gate: 1 of 1 peers missing after \d+ s: worker 1 at {address}", waiting.last_words)


@pytest.mark.parametrize("waiting", ["worker-0", "worker-1"])
def test_a_worker_that_dies_behind_the_start_gate_is_not_waited_for_longer(folder: Path, waiting: str) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=["--start-timeout=4"], program=launched_once()) as job:
        other = job.cluster["worker"][1 if waiting == "worker-0" else 0]
        with past_the_gate(int(other.rpartition(":")[2])):
            assert job.start(waiting)[waiting].wait(SOON) == 75


@contextmanager
def past_the_gate(port: int) -> Iterator[None]:
    """A task that has left its gate, so that it greets no more, and died before it sent a word to TensorFlow."""
    silent: list[socket.socket] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                caller, _ = server.accept()
                if caller.recv(8, socket.MSG_PEEK) == b"dtj-gate":
                    caller.close()
                else:
                    silent.append(caller)

    with socket.create_server(("", port)) as server:
        threading.Thread(target=listen, daemon=True).start()
        yield


def test_a_task_that_is_asked_to_stop_at_the_start_gate_stops_at_once(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO) as job:
        waiting = job.start("worker-0")["worker-0"]
        waiting.wait_for("strategy MultiWorkerMirrored")
        waiting.kill(signal.SIGTERM)
        assert waiting.wait(SOON) == 143


def test_a_task_that_is_asked_to_stop_while_it_connects_stops_at_once(folder: Path) -> None:
    with (
        Job(folder, strategy=STRATEGY, roles=TWO, program=launched_once()) as job,
        # The peer is met at the gate, and then never speaks as TensorFlow does: that waits, and lets no Python run.
        closing(ReadinessListener(int(job.cluster["worker"][0].rpartition(":")[2]), name="worker 0")),
    ):
        waiting = job.start("worker-1")["worker-1"]
        address = ("127.0.0.1", int(job.cluster["worker"][1].rpartition(":")[2]))
        # At its gate it answers; in between its port is closed; TensorFlow's server knows no greeting.
        while handshake(address, name="worker 0", attempt=0) != NO_HANDSHAKE:
            assert waiting.process.poll() is None, "ended before it connected"
        waiting.kill(signal.SIGTERM)
        assert waiting.wait(SOON) == 143


def test_checkpoint_directories_that_are_not_shared_are_refused(folder: Path, together: Job) -> None:
    """The other worker waits for the checkpoint of the leader for as long as a start may take."""
    arguments = [*SHORT, "--start-timeout=20"]
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=arguments, exports=False) as job:
        job.start("worker-0", environ={"DTJ_CHECKPOINT_DIR": str(together.checkpoints)})
        job.start("worker-1", environ={"DTJ_CHECKPOINT_DIR": str(folder / "mine")})
        assert set(job.wait().values()) == {2}
    assert "tasks found different steps in it (90, 0); it must be one volume" in job["worker-1"].last_words
