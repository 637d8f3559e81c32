"""A run that resumes with another global batch, such as that of another number of replicas."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from dtj_trainer.config.execution import BatchSize
from dtj_trainer.training.seen_examples import SeenExamples
from dtj_trainer.training.stepping import Course
from trainer.cluster import Job
from trainer.data_files import opened, taken, write

DIGITS = {"examples": 1438, "epochs": 10}
"""225 steps of 64 examples, 113 steps of 128."""


def seen(*, batch: int, step: int, examples: int) -> SeenExamples:
    """Of a run with this batch that has restored a checkpoint of this step."""
    config = SimpleNamespace(batch_size=BatchSize(each_replica=64), cluster=SimpleNamespace(leads=True))
    run: Any = SimpleNamespace(config=config, validation_data=SimpleNamespace(refresh=lambda: None))
    step_variable, total = (tf.Variable(value, dtype=tf.int64) for value in (step, 0))
    found = SeenExamples(run, Course(**DIGITS, batch=batch), step=step_variable, total_steps=total)
    found._examples.assign(examples)
    found._batch.assign(examples // step)
    return found


def resume(found: SeenExamples) -> Course:
    found.course = found._resumed()
    return found.course


def test_a_run_of_another_number_of_replicas_trains_the_rest_of_its_epochs(folder: Path) -> None:
    """Each epoch has 456 examples."""
    arguments = ["--task=tabular-classification", "--per-replica-batch-size=7", "--schedule=cosine"]
    with Job(folder, strategy="Mirrored", roles={"worker": 1}, arguments=arguments, exports=False) as job:
        assert job.start(arguments=["--logical-cpus=1", "--epochs=1"]).wait() == {"worker-0": 0}
        assert job.result["steps"] == 66
        more = ["--logical-cpus=2", "--epochs=3"]
        assert job.start(arguments=more).wait() == {"worker-0": 0}
        assert job.result["steps"] == 66 + 65
        less = ["--logical-cpus=1", "--epochs=4"]
        assert job.start(arguments=less).wait() == {"worker-0": 0}
        assert job.result["steps"] == 131 + 65
    log = job["worker-0"].log
    assert (
        "the global batch was 7 and is 14 (--per-replica-batch-size=7), which changes the curve: the run goes on "
        "after the 462 examples that it has seen, and has 131 steps in all"
    ) in log
    assert "falling by a cosine to 0 over 131 steps" in log
    assert "step 196/196 (100%)  epoch 4/4" in log


@pytest.mark.parametrize("form", ["csv", "images"])
def test_the_batches_after_a_change_are_the_next_examples(tmp_path: Path, form: str) -> None:
    source = opened(write(tmp_path / "data", form))
    source.window = 20
    singly = [pair for batch in taken(source.batches(batch=1, seed=3), 150) for pair in batch]
    for before, batch in ((7, 12), (12, 7)):
        course = Course(examples=source.examples, epochs=9, batch=batch).resumed(5, seen=5 * before)
        stream = source.batches(batch=batch, seed=3, first_step=6, offset=course.offset)
        first = 5 * before + batch
        assert [pair for rows in taken(stream, 3) for pair in rows] == singly[first : first + 3 * batch]


def test_examples_seen_and_not_steps_say_where_a_run_is() -> None:
    found = seen(batch=128, step=200, examples=200 * 64)
    course = resume(found)
    assert course.total_steps == 200 + 13
    assert (course.epoch_of(200), course.epoch_of(213)) == (9, 10)
    found._refresh()
    assert (int(found._examples), int(found._batch)) == (200 * 64, 128)
