"""Data that are not the same each time, or on each worker, are refused before the first step."""

from pathlib import Path

import pytest

from trainer import endings
from trainer.changing_data import options_of
from trainer.cluster import ran

CHANGES = "the order of the examples changes from one reading to the next"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("examples.shuffle(COUNT)", CHANGES),
        ("examples.shuffle(COUNT, seed=1)", CHANGES),
        ("examples.shuffle(2)", CHANGES),
        ("examples.shuffle(COUNT, reshuffle_each_iteration=False)", CHANGES),
        ("examples.map(lambda x, y: (x, tf.ones([1]))).shuffle(COUNT)", CHANGES),
        (
            "(lambda mixed: {'training': mixed.skip(40), 'held_out': mixed.take(40)})(examples.shuffle(COUNT))",
            "the held_out examples change from one reading to the next",
        ),
    ],
)
def test_a_dataset_that_shuffles_by_itself_is_refused_with_the_remedy(folder: Path, data: str, line: str) -> None:
    job = ran(folder, code=2, **options_of("OneDevice", data, count=200))
    assert job["worker-0"].last_words.startswith(f"--data=mine:data: {line}")
    assert "reshuffle_each_iteration=False" in job["worker-0"].last_words


@pytest.mark.parametrize(
    "data",
    [
        "examples.shuffle(COUNT, seed=1, reshuffle_each_iteration=False)",
        "examples.map(lambda x, y: (x + tf.random.normal([2]), y))",
        # Each fifth is held out.
        "examples.enumerate().map(lambda n, e: (e[0] + tf.random.normal([2]), tf.cast([n % 5], tf.float32)))",
        "{'training': examples.skip(40).shuffle(COUNT), 'held_out': examples.take(40)}",
    ],
)
def test_a_fixed_order_augmentation_and_separate_parts_are_not_refused(folder: Path, data: str) -> None:
    ran(folder, **options_of("OneDevice", data, count=200))


def test_workers_with_data_of_different_length_end_before_the_first_step(folder: Path) -> None:
    job = ran(folder, code=2, **options_of("MultiWorkerMirrored", "examples.take(COUNT - 40 * INDEX)", count=200))
    endings.check(job, "data_of_different_length")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("examples.skip(10 * INDEX).take(100)", "data: worker 0 and worker 1 do not read the same examples"),
        (
            "{'training': examples.skip(40).shuffle(COUNT), 'held_out': examples.take(40)}",
            "data: worker 0 and worker 1 do not read the same examples in the same order",
        ),
        (
            "examples.map(lambda x, y: (tf.cast(x, tf.float64 if INDEX else tf.float32), y))",
            "data: worker 0 has TensorSpec(shape=(None, 2), dtype=tf.float32, name=None) inputs, worker 1 has",
        ),
    ],
)
def test_workers_with_different_data_end_with_2_and_a_line_that_names_both(folder: Path, data: str, line: str) -> None:
    job = ran(folder, code=2, **options_of("MultiWorkerMirrored", data, count=200))
    for replica in job.replicas.values():
        assert replica.last_words.startswith(line)
