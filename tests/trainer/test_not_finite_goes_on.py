"""`--on-nan=skip`: the training ends as that of plain Keras without the batch that is not finite."""

from pathlib import Path

import pytest

from trainer.cluster import ran
from trainer.not_finite import ARGUMENTS, BAD_STEP, FAR, STAGED, expected, mine, weights

EPOCHS = """
import keras
import numpy as np
import tensorflow as tf

BAD = 0, 14

def examples(left_out=()):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(15, 8, 4)).astype("float32")
    labels = inputs.sum(axis=2, keepdims=True)
    inputs[BAD, 5] = np.nan  # of 2 workers, the second has the second half of a batch of 8
    keep = [number for number in range(15) if number not in left_out]
    flat = inputs[keep].reshape(-1, 4), labels[keep].reshape(-1, 1)
    return tf.data.Dataset.from_tensor_slices(flat)

def data():
    return {"training": examples(), "held_out": examples(BAD).take(8)}

def model():
    layers, norm = keras.layers, keras.layers.BatchNormalization(synchronized=True)
    found = keras.Sequential([layers.Input((4,)), layers.Dense(4, use_bias=False), norm, layers.Dense(1)])
    found.compile(loss="mse", metrics=["mae"])
    return found

def train():
    keras.utils.set_random_seed(0)
    found = model()
    found.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse", metrics=["mae"])
    found.fit(examples(BAD).batch(8), epochs=4, shuffle=False, verbose=0)
    return [weight.numpy().ravel() for weight in found.weights]
"""
"""The first and the last batch of each epoch are not finite."""


@pytest.mark.parametrize("strategy", ["Mirrored", "MultiWorkerMirrored"])
def test_epochs_go_on_as_plain_keras_without_their_first_and_last_batch(folder: Path, strategy: str) -> None:
    arguments = [*ARGUMENTS, "--on-nan=skip", "--epochs=4"]
    arguments += ["--checkpoint-every-steps=13", "--steps-per-call=1", "--logical-cpus=2"]
    job = ran(folder, strategy=strategy, arguments=arguments, files={"mine.py": EPOCHS}, exports=False)
    assert job.result["steps"] == 60
    wanted = mine(folder).train()
    for ours, theirs in zip(weights(job, 60), wanted, strict=True):
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
