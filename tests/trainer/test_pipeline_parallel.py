"""Pipeline by real processes: workers that serve, one of which, or a chief, drives."""

import re
import signal
from pathlib import Path

import pytest

from trainer.cluster import SOON, Job, launched_once, stopped
from trainer.conftest import SHORT
from trainer.outcome import curves, tensors

STRATEGY = "Pipeline"
TWO = {"worker": 2}
ENDLESS = ("--epochs=100000", "--batch-size=48", "--checkpoint-every-steps=20")


@pytest.fixture(scope="session")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, in two stages; the leader has finished, and then the other was asked to stop."""
    with Job(tmp_path_factory.mktemp("piped"), strategy=STRATEGY, roles=TWO, arguments=SHORT, plain=True) as job:
        assert job.start()["worker-0"].wait() == 0
        assert job["worker-1"].process.poll() is None, "a stage never ends by itself"
        job["worker-1"].kill(signal.SIGTERM)
        assert job["worker-1"].wait(SOON) == 143
    return job


def test_two_stages_learn_what_one_process_learns(alone: Job, piped: Job) -> None:
    leader = piped["worker-0"]
    assert piped.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)
    assert piped.result["steps"] == 90
    assert "batch 48 global, 4 micro-batches of 12  stages 2  " in leader.log
    assert "stage 0: conv2d..flatten, 18,816 parameters\nstage 1: dense..dense_1, 132,490 parameters" in leader.log
    assert re.search(r"^step 90/90 \(100%\)  epoch 3/3  loss 0\.\d+", leader.log, re.M)
    assert curves(piped.folder / "logs" / "train")["loss"][-1] == 90
    assert (piped.folder / "export" / "1" / "saved_model.pb").exists()


def test_a_preempted_and_then_killed_job_ends_with_the_same_bits(folder: Path, piped: Job) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=SHORT, exports=False) as job:
        job.hold_at(20)
        job.start().wait_for_checkpoint(20)
        job.kill(signal.SIGTERM)
        job.hold_at(80)
        assert job.wait() == {"worker-0": 42, "worker-1": 143}, "the stage stays until its weights are saved"
        saved = int(job["worker-0"].wait_for(r"preempted: saved step (\d+) of 90")[1])

        job.start().wait_for_checkpoint(80)
        job.kill()
        job.let_go()
        assert set(job.wait().values()) == {-signal.SIGKILL}
        job["worker-0"].wait_for(f"resumed: step {saved} of 90")

        assert job.start()["worker-0"].wait() == 0
    assert tensors(job.checkpoints / "ckpt-90") == tensors(piped.checkpoints / "ckpt-90")


def test_a_run_of_one_process_goes_on_in_three_stages_and_then_in_one_process(folder: Path, alone: Job) -> None:
    def until(epochs: int, *, strategy: str, workers: int) -> Job:
        arguments = [*SHORT, f"--epochs={epochs}"]
        with Job(folder, strategy=strategy, roles={"worker": workers}, arguments=arguments, exports=False) as job:
            assert job.start()["worker-0"].wait() == 0
        return job

    until(1, strategy="OneDevice", workers=1)
    assert "resumed: step 30 of 60" in until(2, strategy=STRATEGY, workers=3)["worker-0"].log
    last = until(3, strategy="OneDevice", workers=1)
    assert "resumed: step 60 of 90" in last["worker-0"].log
    assert last.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)


def test_a_chief_drives_the_pipeline_and_an_evaluator_judges(folder: Path, alone: Job) -> None:
    roles = {"chief": 1, "worker": 2, "evaluator": 1}
    arguments = [*SHORT, "--micro-batches=2", "--stages=dense"]
    with Job(folder, strategy=STRATEGY, roles=roles, arguments=arguments, exports=False) as job:
        assert job.start()["chief-0"].wait() == 0
        assert job["evaluator-0"].wait() == 0
        assert "2 micro-batches of 24  stages 2  " in job["chief-0"].log
    assert job.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)


def test_a_killed_stage_ends_the_leader_as_peer_lost(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(20)
        job["worker-1"].kill()
        assert job["worker-0"].wait(SOON) == 75
    assert job["worker-0"].last_words.startswith("peer lost: worker 1 not reachable")
    assert "Traceback" not in job["worker-0"].log


def test_a_silent_stage_ends_the_leader_as_peer_lost(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start("worker-1")
        job.program = launched_once()
        job.start("worker-0").wait_for_checkpoint(20)
        with stopped(job["worker-1"]):
            assert job["worker-0"].wait(SOON) == 75


def test_a_stage_that_is_asked_to_stop_stays_until_the_leader_has_saved(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(20)
        job["worker-1"].kill(signal.SIGTERM)
        assert job.wait() == {"worker-0": 42, "worker-1": 143}
        saved = int(job["worker-0"].wait_for(r"preempted: saved step (\d+) of")[1])
        assert job.newest_checkpoint == saved
        assert "worker 1 was asked to stop: saving a checkpoint, then leaving" in job["worker-0"].log


def test_a_leader_that_is_killed_is_replaced_on_stages_that_live_on(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(20)
        job["worker-0"].kill()
        job["worker-0"].wait()
        saved = job.newest_checkpoint
        job.start("worker-0").wait_for_checkpoint(saved + 20)
        job["worker-0"].wait_for(f"resumed: step {saved} of")
        assert job["worker-1"].process.poll() is None
