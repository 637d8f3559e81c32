"""A run that resumes with another global batch, such as that of another number of replicas."""

from pathlib import Path

import pytest

from dtj_trainer.training.stepping import Course
from trainer.cluster import Job
from trainer.data_files import opened, taken, write


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
