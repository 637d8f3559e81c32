"""One run at a time writes to a checkpoint directory, and what is left of a killed run does not hold up the next."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dtj_trainer.checkpoint import directory_lock
from dtj_trainer.errors import TrainerError, UsageError
from log_lines import log_lines
from trainer.cluster import DEADLINE, Job, inherited

HOLDS = """
import sys, time
from pathlib import Path
from dtj_trainer.checkpoint.directory_lock import hold

hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(3600)
"""
LONG = ("--task=tabular-classification", "--epochs=100000", "--checkpoint-every-steps=20")


@contextmanager
def holder(directory: Path, program: str = HOLDS) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock of the directory; what it has started goes with it."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        env=inherited(), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_directory_that_a_process_of_this_machine_uses_is_refused_until_that_process_ends(tmp_path: Path) -> None:
    with holder(tmp_path) as process, pytest.raises(UsageError) as refused:
        directory_lock.hold(tmp_path, here_seconds=0.5)
    assert str(refused.value) == (
        f"checkpoint directory {tmp_path}: another run uses it (process {process.pid}); wait for its end, or give "
        "another --checkpoint-dir"
    )
    directory_lock.hold(tmp_path)
    directory_lock.hold(tmp_path)


@pytest.mark.parametrize("differs", ["_BOOT", "_PROCESSES"], ids=["machine", "container"])
def test_a_process_of_another_machine_or_container_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: str
) -> None:
    """A pod that replaces one that was deleted by force may start on the same node before the old one has ended."""
    with holder(tmp_path) as process:
        monkeypatch.setattr(directory_lock, differs, tmp_path / "of another")
        (tmp_path / "of another").write_text("of another kernel")
        with pytest.raises(TrainerError) as refused, log_lines() as printed:
            directory_lock.hold(tmp_path, here_seconds=0.0, elsewhere_seconds=0.5)
    assert not isinstance(refused.value, UsageError)
    owner = f"process {process.pid} of {os.uname().nodename}"
    assert printed == [f"checkpoint directory {tmp_path}: another run uses it ({owner}); waiting 0.5 s for its end"]


def test_a_directory_that_takes_no_lock_is_used_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory_lock.hold(tmp_path / "file" / "within")


def test_a_child_that_outlives_a_killed_process_does_not_keep_its_lock(tmp_path: Path) -> None:
    forks = HOLDS.replace("print(", "import os\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\nprint(")
    with holder(tmp_path, forks) as process:
        process.kill()
        process.wait(DEADLINE)
        directory_lock.hold(tmp_path, here_seconds=0.5)


def test_a_second_run_in_a_checkpoint_directory_ends_with_one_line_and_a_killed_one_is_resumed(folder: Path) -> None:
    with Job(folder, arguments=LONG) as job:
        first = job.start()["worker-0"]
        job.wait_for_checkpoint(20)
        second = job.start()["worker-0"]
        assert second.wait() == 2
        assert second.last_words.startswith(f"checkpoint directory {job.checkpoints}: another run uses it (process ")
        assert first.process.poll() is None
        first.kill()
        first.wait()
        third = job.start()["worker-0"]
        third.wait_for(r"resumed: step \d+ ")
