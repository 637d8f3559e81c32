"""The evaluator and checkpoints that it cannot read, or not yet."""

import shutil
from pathlib import Path

from trainer.cluster import Job


def test_a_checkpoint_whose_data_are_seen_later_than_its_index_is_evaluated_then_and_no_other_again(
    folder: Path,
) -> None:
    """As on a network volume. It is the last one, after which the evaluator ends."""
    arguments = ["--task=tabular-classification", "--batch-size=48", "--epochs=2", "--checkpoint-every-steps=10"]
    roles = {"worker": 1, "evaluator": 1}
    with Job(folder, strategy="OneDevice", roles=roles, arguments=arguments, exports=False) as job:
        assert job.start("worker-0").wait() == {"worker-0": 0}
        (data,) = job.checkpoints.glob("ckpt-19.data-*")
        shutil.move(data, folder)
        evaluator = job.start("evaluator-0")["evaluator-0"]
        evaluator.wait_for("warning: checkpoint of step 19 cannot be evaluated: damaged: ")
        shutil.move(folder / data.name, job.checkpoints)
        assert evaluator.wait() == 0
    assert [evaluator.log.count(f"step {step}/19  held-out: ") for step in (10, 19)] == [1, 1]
    assert evaluator.log.count("warning: ") == 1
