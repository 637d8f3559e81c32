"""Data that are not the same each time, or on each worker, are refused before the first step."""

from pathlib import Path

import pytest

from trainer import endings
from trainer.changing_data import options_of
from trainer.cluster import Job, ran


@pytest.mark.parametrize(
    "data",
    [
        "examples.shuffle(COUNT)",
        "examples.shuffle(2, seed=1)",
        "examples.shuffle(COUNT, reshuffle_each_iteration=False)",
        "(lambda mixed: {'training': mixed.skip(40), 'held_out': mixed.take(40)})(examples.shuffle(COUNT))",
    ],
)
def test_data_that_are_shuffled_before_some_are_held_out_are_refused_with_the_remedy(folder: Path, data: str) -> None:
    job = ran(folder, code=2, **options_of("OneDevice", data, count=200))
    assert job["worker-0"].last_words.startswith(
        "--data=mine:data: the held_out examples change from one reading to the next"
    )
    assert "reshuffle_each_iteration=False" in job["worker-0"].last_words


@pytest.mark.parametrize(
    "data",
    [
        "examples.shuffle(COUNT, seed=1, reshuffle_each_iteration=False)",
        "{'training': examples.skip(40).map(lambda x, y: (x + tf.random.normal([2]), y)), "
        "'held_out': examples.take(40)}",
        "{'training': examples.skip(40).shuffle(COUNT), 'held_out': examples.take(40)}",
    ],
)
def test_a_fixed_order_augmentation_and_separate_parts_are_not_refused(folder: Path, data: str) -> None:
    ran(folder, **options_of("OneDevice", data, count=200))


def test_workers_with_files_of_other_classes_end_before_the_first_step(folder: Path) -> None:
    for worker, classes in (("worker-0", "cat dog"), ("worker-1", "bird dog")):
        (folder / worker).mkdir(parents=True)
        lines = [f"{number % 7},{classes.split()[number % 2]}" for number in range(100)]
        (folder / worker / "a.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    arguments = ["--task=tabular-classification", "--batch-size=20", "--epochs=1"]
    with Job(folder, strategy="MultiWorkerMirrored", arguments=arguments, exports=False) as job:
        for name in ("worker-0", "worker-1"):
            job.start(name, arguments=[f"--data-dir={name}"])
        assert set(job.wait().values()) == {2}
    assert job["worker-0"].last_words.startswith("data: worker 0 and worker 1 do not have the same classes; give all")


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
