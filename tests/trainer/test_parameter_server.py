"""ParameterServer by real processes: one coordinator, two workers, one parameter server."""

import re
import signal
from pathlib import Path

import pytest

from trainer.cluster import Job, stopped

pytestmark = pytest.mark.trainer

STRATEGY = "ParameterServer"
ROLES = {"chief": 1, "worker": 2, "ps": 1}
WITH_EVALUATOR = {**ROLES, "evaluator": 1}
ENDLESS = ("--epochs=100000", "--checkpoint-every-steps=40")


def test_it_learns_the_digits_even_when_a_worker_dies_and_the_coordinator_is_replaced(folder: Path) -> None:
    arguments = ["--epochs=8", "--checkpoint-every-steps=40"]
    with Job(folder, strategy=STRATEGY, roles=WITH_EVALUATOR, arguments=arguments) as job:
        job.start().wait_for_checkpoint(40)
        job["chief-0"].kill(signal.SIGTERM)
        assert job["chief-0"].wait() == 42
        saved = int(job["chief-0"].wait_for(r"preempted: saved step (\d+) of 180")[1])
        assert (job.checkpoints / f"ckpt-{saved}.index").exists()

        chief = job.start("chief-0")["chief-0"]
        chief.wait_for(f"resumed: step {saved} of 180")
        job.wait_for_checkpoint(saved + 1)
        job["worker-1"].kill()
        assert chief.wait() == 0

        assert job["evaluator-0"].wait() == 0
        assert re.search(r"^step 1\d\d/180  held-out: accuracy 0\.9", job["evaluator-0"].log, re.M)
        for server in ("worker-0", "ps-0"):
            assert "serving 127.0.0.1:" in job[server].log
            job[server].kill(signal.SIGTERM)
            assert job[server].wait(5) == 143
    assert job.result["accuracy"] >= 0.95
    assert job.result["steps"] >= 180
    assert re.search(r"^step \d+/180 \(\d+%\)  epoch \d+/8  loss \d", chief.log, re.M)
    assert (folder / "export" / "1" / "saved_model.pb").exists()


def test_a_lost_parameter_server_ends_the_coordinator_as_peer_lost(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(40)
        job["ps-0"].kill()
        assert job["chief-0"].wait(20) == 75
    assert job["chief-0"].last_words.startswith("peer lost: ps 0 not reachable")
    assert "Traceback" not in job["chief-0"].log


def test_silent_workers_end_the_coordinator_when_nothing_moves(folder: Path) -> None:
    arguments = ["--epochs=100000", "--checkpoint-every-steps=1000000", "--stall-timeout=5"]
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=arguments) as job:
        job.start()["chief-0"].wait_for(r"step \d+/")
        with stopped(job["worker-0"]), stopped(job["worker-1"]):
            assert job["chief-0"].wait(30) == 75
    assert job["chief-0"].last_words == "no step was finished for 5 s (--stall-timeout): a task of this job hangs"


def test_silent_workers_end_the_coordinator_even_where_tensorflow_blocks_all_of_python(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=[*ENDLESS, "--stall-timeout=5"]) as job:
        # While it saves: TensorFlow then tells the workers of functions, and holds the interpreter's lock.
        job.start().wait_for_checkpoint(40)
        with stopped(job["worker-0"]), stopped(job["worker-1"]):
            assert job["chief-0"].wait(30) == 75
