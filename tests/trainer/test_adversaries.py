"""What users write, composed at random, gives the numbers of plain Keras on one device, or one line says why not.

A run tries the samples of SEEDS and the rows ALWAYS of what was once found; with `DTJ_ADVERSARIES=all` all rows.
"""

import os
from collections.abc import Iterator

import pytest

from trainer.adversaries import ways
from trainer.adversaries.compose import compose
from trainer.adversaries.found import ROWS
from trainer.adversaries.judge import judge

SEEDS = (5004, 5014, 5019, 5034, 5041)
ALWAYS = (
    "masked mean", "masked mean of all replicas", "load balancing", "vector target", "no examples, convolution",
    "pixels, two workers", "files, a part held out", "own shard", "masked mean of nearly equal losses",
    "masked mean by a Loss", "own step with a compute_loss that sums", "embedding in a pipeline",
)  # fmt: skip
CHOSEN = ROWS if os.environ.get("DTJ_ADVERSARIES") == "all" else ALWAYS


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    """Runs are forked from one process that has imported TensorFlow."""
    with ways.forking():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_composed_at_random_gives_the_numbers_of_plain_keras_or_one_line(seed: int) -> None:
    sample = compose(seed)
    verdict = judge(sample)
    assert not verdict.fault, f"{verdict}\n{sample}"


@pytest.mark.parametrize("name", CHOSEN)
def test_what_was_once_found_has_the_verdict_of_its_row(name: str) -> None:
    row = ROWS[name]
    verdict = judge(row.sample)
    assert verdict.kind == row.verdict, f"{verdict}, and no longer {row.verdict}"
