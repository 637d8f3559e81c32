"""What a pipeline computes is what the model computes that was never cut."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.cluster import DEADLINE, inherited

PROGRAM = Path(__file__).with_name("pipeline_parallel_models.py")
CASES = ("normalisation", "penalties", "dropout", "computed_again")


def figures(case: str) -> dict[str, float]:
    """What `pipeline_parallel_models.py` finds."""
    return all_figures()[case]


@functools.cache
def all_figures() -> dict[str, dict[str, float]]:
    """The same of all cases, from one process that imports TensorFlow once."""
    environ = {**inherited(), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, PROGRAM, *CASES], env=environ, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def test_moving_statistics_are_moved_on_once_by_each_micro_batch_in_turn() -> None:
    found = dict(figures("normalisation"))
    assert found.pop("how far they moved") > 1e-3
    assert {name: value for name, value in found.items() if value > 1e-5} == {}


def test_the_loss_that_is_shown_includes_the_penalties_of_all_stages() -> None:
    found = figures("penalties")
    assert found["loss"] == pytest.approx(found["wanted"], rel=1e-5)
    assert found["wanted"] > 1.5 * found["without"]


def test_what_is_computed_a_second_time_drops_the_same_units_and_the_next_step_others() -> None:
    found = figures("dropout")
    assert found["cut and uncut"] < 1e-6
    assert found["the same step again"] == 0
    assert found["the next step"] > 1e-3


def test_what_is_within_a_stage_is_computed_again_for_the_gradient_and_not_kept() -> None:
    # Both convolutions are in the first stage; there are two micro-batches.
    assert figures("computed_again") == {"convolutions": 2 * 2 * 2}
