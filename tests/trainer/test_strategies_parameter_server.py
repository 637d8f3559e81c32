"""ParameterServer beyond its own loop: two servers, an evaluator and another strategy."""

import re
import signal
from pathlib import Path

from trainer.cluster import Job, Replica

STRATEGY = "ParameterServer"
TWO_SERVERS = {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}
LONG = ("--epochs=8", "--checkpoint-every-steps=60")


def preempted(job: Job) -> tuple[Replica, int]:
    """Has the chief of a new job stop after step 60, and starts it again: the chief, and the step that it resumes."""
    job.hold_at(60)
    job.start().wait_for_checkpoint(60)
    job["chief-0"].kill(signal.SIGTERM)
    job.hold_at(120)
    assert job["chief-0"].wait() == 42
    saved = job.newest_checkpoint
    chief = job.start("chief-0")["chief-0"]
    chief.wait_for(f"resumed: step {saved} of 180")
    return chief, saved


def test_what_two_servers_save_is_read_by_servers_evaluator_and_another_strategy(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=TWO_SERVERS, arguments=LONG) as job:
        chief, _ = preempted(job)
        job.let_go()
        assert chief.wait() == 0
        assert job["evaluator-0"].wait() == 0
    assert job.result["accuracy"] >= 0.95

    arguments = ["--epochs=9", "--checkpoint-every-steps=60"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments) as alone:
        assert alone.start().wait() == {"worker-0": 0}
    assert re.search(r"resumed: step 1[89]\d of 203", alone["worker-0"].log)
    assert alone.result["accuracy"] >= 0.95
