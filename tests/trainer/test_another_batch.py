"""A run that resumes with another global batch, such as that of another number of replicas."""

from pathlib import Path

import pytest
import tensorflow as tf

from dtj_trainer.config.execution import BatchSize
from dtj_trainer.errors import UsageError
from dtj_trainer.training.seen_examples import SeenExamples
from dtj_trainer.training.stepping import Course
from log_lines import log_lines
from trainer.cluster import Job
from trainer.data_files import opened, taken, write

pytestmark = pytest.mark.trainer

DIGITS = {"examples": 1438, "epochs": 10}
"""225 steps of 64 examples, 113 steps of 128."""


def seen(*, batch: int, step: int, examples: int = -1) -> SeenExamples:
    """Of a run with this batch that has restored a checkpoint of this step; -1: one that does not say its batch."""
    found = SeenExamples(Course(**DIGITS, batch=batch), tf.Variable(step, dtype=tf.int64))
    if examples >= 0:
        found.parts["examples"][0].assign(examples)
        found.parts["batch"][0].assign(examples // step)
    return found


def resume(found: SeenExamples, *, per_replica: bool, total_steps: int = 225) -> Course:
    asked = BatchSize(each_replica=64) if per_replica else BatchSize(whole_job=found.course.batch)
    return found.resume(asked, "/c/ckpt-200", total_steps=total_steps, leads=True)


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
        "the global batch was 7 and is 14 (--per-replica-batch-size=7): the run goes on after the 462 examples that it "
        "has seen, and has 131 steps in all"
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
    course = resume(found, per_replica=True)
    assert course.total_steps == 200 + 13
    assert (course.epoch_of(200), course.epoch_of(213)) == (9, 10)
    found.refresh()
    assert [int(found.parts[name][0]) for name in ("examples", "batch")] == [200 * 64, 128]


def test_a_checkpoint_that_does_not_say_its_batch_is_resumed_with_the_same_one() -> None:
    with log_lines() as printed:
        assert resume(seen(batch=64, step=200), per_replica=True).total_steps == 225
    assert len(printed) == 1
    assert printed[0].endswith("does not say its batch; it is taken for one of 64 (--per-replica-batch-size=64)")
    # Of 8 epochs, whereas the run has 10.
    with log_lines() as printed:
        assert resume(seen(batch=64, step=180), per_replica=False, total_steps=180).total_steps == 225
    assert printed[0].endswith("it is taken for one of 64 (--batch-size=64) and of 8 epochs")


@pytest.mark.parametrize(
    ("batch", "step", "per_replica", "flag"),
    [
        (128, 200, True, "--per-replica-batch-size=64"),
        (128, 100, True, "--per-replica-batch-size=64"),
        (128, 200, False, "--batch-size=128"),
        (100, 50, False, "--batch-size=100"),
    ],
)
def test_a_checkpoint_that_does_not_say_its_batch_is_refused_another_one(
    batch: int, step: int, per_replica: bool, flag: str
) -> None:
    with pytest.raises(UsageError, match=rf"^checkpoint /c/ckpt-200: an older version .* 225 steps.*\({flag}\); resum"):
        resume(seen(batch=batch, step=step), per_replica=per_replica)
