"""A slice of TPU hosts that a chief drives: CPUs take the steps in place of the chips, in the servers of the hosts.

All but the chips is real: the servers, the connections, the training of the chief, and how it ends.
"""

import signal
from pathlib import Path

import pytest

from trainer.cluster import SOON, Job, launched_once, stopped
from trainer.conftest import SHORT

ROLES = {"chief": 1, "worker": 2}
HOSTS = ("worker-0", "worker-1")
CHIPS = {"TEST_CPUS_ARE_CHIPS": "1"}


def test_a_slice_that_loses_a_host_or_is_asked_to_stop_goes_on_where_it_was_when_all_start_again(
    folder: Path, alone: Job
) -> None:
    with Job(folder, strategy="TPU", roles=ROLES, arguments=SHORT, plain=True, exports=False) as job:
        job.hold_at(20)
        job.start(environ=CHIPS).wait_for_checkpoint(20)
        assert "replicas 2" in job["chief-0"].log
        job["worker-1"].kill()
        job["worker-1"].wait()
        job.let_go()
        assert job["chief-0"].wait(SOON) == 75
        assert job["chief-0"].last_words.startswith("peer lost: worker 1 not reachable; ")
        assert "Traceback" not in job["chief-0"].log
        assert job["worker-0"].process.poll() is None  # it is for the operator to stop
        job["worker-0"].kill(signal.SIGTERM)
        assert job["worker-0"].wait(SOON) == 143

        job.hold_at(50)
        job.start(environ=CHIPS).wait_for_checkpoint(50)
        job["chief-0"].wait_for("resumed: step 20 of 90")
        job.kill(signal.SIGTERM)
        job.let_go()
        assert job.wait() == {"chief-0": 42, "worker-0": 143, "worker-1": 143}
        saved = job.newest_checkpoint
        assert saved >= 50
        assert job["chief-0"].last_words.startswith(f"preempted: all tasks saved step {saved} of 90")

        assert job.start(environ=CHIPS)["chief-0"].wait() == 0
        job["chief-0"].wait_for(f"resumed: step {saved} of 90")
    assert job.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)


@pytest.mark.parametrize("silent", HOSTS)
def test_a_host_that_does_not_answer_is_named(folder: Path, silent: str) -> None:
    arguments = [*SHORT, "--epochs=100000", "--checkpoint-every-steps=20", "--stall-timeout=5"]
    with Job(folder, strategy="TPU", roles=ROLES, arguments=arguments, plain=True, exports=False, patient=True) as job:
        job.hold_at(20)
        job.start(*HOSTS)
        job.program = launched_once()
        job.start("chief-0", environ=CHIPS).wait_for_checkpoint(20)
        with stopped(job[silent]):
            job.let_go()
            (folder / "stalls").touch()
            assert job["chief-0"].wait(SOON) == 75
    name = silent.replace("-", " ")
    assert job["chief-0"].last_words == f"no step was finished for 5 s (--stall-timeout): {name} does not answer"
