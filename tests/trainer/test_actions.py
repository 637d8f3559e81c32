"""`--actions`: a user's own actions, every N steps of the trainer's own loop."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import UsageError
from trainer.cluster import Job, ran
from trainer.conftest import SHORT
from trainer.outcome import tensors

SHRINKS = """
class Shrinks:
    every_steps = 7

    def __call__(self, step, metrics, model):
        for weight in model.trainable_variables:
            weight.assign(weight * 0.99)
        print("shrunk at step", step, *sorted(metrics), "loss", metrics["loss"])

def actions():
    return [Shrinks()]
"""
CALLS = r"^shrunk at step (\d+) accuracy loss loss (\S+)$"
EVERY_SEVEN = [*range(7, 90, 7), 90]
FAILS = """
class Fails:
    every_steps = 3

    def __call__(self, step, metrics, model):
        raise ValueError("no place")

def actions():
    return [Fails()]
"""


def calls(job: Job, task: str = "worker-0") -> list[tuple[str, str]]:
    return re.findall(CALLS, job[task].log, re.M)


def test_what_an_action_changes_is_in_the_checkpoint_of_its_step(folder: Path) -> None:
    arguments = [*SHORT, "--checkpoint-every-steps=7", "--actions=mine:actions"]
    files = {"mine.py": SHRINKS}
    whole = ran(folder / "whole", arguments=arguments, files=files, exports=False)
    assert [int(step) for step, _ in calls(whole)] == EVERY_SEVEN
    with Job(folder / "parts", arguments=arguments, files=files, exports=False) as parts:
        parts.hold_at(14)
        worker = parts.start()["worker-0"]
        parts.wait_for_checkpoint(14)
        worker.kill(signal.SIGKILL)
        worker.wait()
        parts.hold_at(42)
        worker = parts.start()["worker-0"]
        parts.wait_for_checkpoint(42)
        worker.kill(signal.SIGTERM)
        parts.let_go()
        assert worker.wait() == 42
        assert parts.start().wait() == {"worker-0": 0}
    assert tensors(parts.checkpoints / "ckpt-90") == tensors(whole.checkpoints / "ckpt-90")


def test_all_workers_call_an_action_after_the_same_steps_with_the_same_metrics(folder: Path) -> None:
    arguments = [*SHORT, "--actions=mine:actions"]
    files = {"mine.py": SHRINKS}
    job = ran(folder, strategy="MultiWorkerMirrored", arguments=arguments, files=files, exports=False)
    assert [int(step) for step, _ in calls(job)] == EVERY_SEVEN
    assert calls(job, "worker-1") == calls(job)


def test_an_action_that_fails_is_one_line_that_names_it_and_its_step(folder: Path) -> None:
    arguments = [*SHORT, "--actions=mine:actions"]
    worker = ran(folder, code=2, arguments=arguments, files={"mine.py": FAILS}, exports=False)["worker-0"]
    assert re.match(
        r"--actions=mine:actions: Fails at step 3 raised ValueError: no place \(\S+mine\.py, line 6\); ",
        worker.last_words,
    )
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("found", ["print", "[print]", "[type('A', (), {'every_steps': 3})()]", "None"])
def test_what_gives_no_actions_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    from dtj_trainer.training.actions import load_actions

    module = f"gives_{abs(hash(found))}"
    (tmp_path / f"{module}.py").write_text(f"def actions():\n    return {found}\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = Name(flag="--actions", module=module, function="actions")
    model: Any = None
    with pytest.raises(UsageError, match=r"return a list of callables that have every_steps, a whole number from 1$"):
        load_actions(name, model, total_steps=10)
