"""`--on-nan=skip`: the training ends as that of plain Keras without the batch that is not finite."""

from pathlib import Path

import pytest

from trainer.cluster import ran
from trainer.not_finite import ARGUMENTS, BAD_STEP, FAR, MINE, STAGED, expected, weights

FIRST, LAST = 1, 15


@pytest.mark.parametrize("strategy", ["Mirrored", "MultiWorkerMirrored"])
def test_epochs_go_on_as_plain_keras_without_their_first_and_last_batch(folder: Path, strategy: str) -> None:
    program = MINE.replace("(480, 4)", "(120, 4)").replace(f"({BAD_STEP} - 1) * 8 + 5", f"[5, {LAST - 1} * 8 + 5]")
    program = program.replace("examples.take(8)", "examples.skip(8).take(8)")
    arguments = [*ARGUMENTS, "--model=mine:normalized", "--on-nan=skip", "--epochs=4"]
    arguments += ["--checkpoint-every-steps=13", "--steps-per-call=1", "--logical-cpus=2"]
    job = ran(folder, strategy=strategy, arguments=arguments, files={"mine.py": program}, exports=False)
    assert job.result["steps"] == 4 * LAST
    wanted = expected(folder, "normalized", bad=(FIRST, LAST), epochs=4)
    for ours, theirs in zip(weights(job, 4 * LAST), wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert "skipped (8 of at most 10)" in job["worker-0"].log


def test_a_pipeline_goes_on_as_plain_keras_without_the_batch(folder: Path) -> None:
    model = "spoils_and_normalizes"
    arguments = [*ARGUMENTS, "--steps-per-call=4", "--stages=cut", f"--model=mine:{model}", "--on-nan=skip"]
    arguments += ["--micro-batches=1"]
    job = ran(folder, strategy="Pipeline", arguments=arguments, files={"mine.py": FAR + STAGED}, exports=False)
    line = f"the loss or a gradient is not finite at step {BAD_STEP} on worker 1 (stage 1): its update is skipped "
    assert f"{line}(1 of at most 10)" in job["worker-0"].log
    for ours, theirs in zip(weights(job, 60), expected(folder, model), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
