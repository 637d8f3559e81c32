"""Models of which one batch is not finite, and what plain Keras comes to without that batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.cluster import Job
from trainer.outcome import tensors

BAD_STEP = 33
MINE = f"""
import keras
import numpy as np
import tensorflow as tf

def data():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(480, 4)).astype("float32")
    labels = inputs.sum(axis=1, keepdims=True)
    inputs[({BAD_STEP} - 1) * 8 + 5] = np.nan  # of 2 workers, the second has the second half of a batch of 8
    examples = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return {{"training": examples, "held_out": examples.take(8)}}

def model(*between):
    layers = [keras.layers.Dense(4, use_bias=False), *between, keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(loss="mse")
    return model

def normalized():
    return model(keras.layers.BatchNormalization())

@tf.custom_gradient
def no_gradient(inputs):
    return tf.identity(inputs), lambda gradient: gradient * np.inf

class NoGradient(keras.layers.Layer):
    def call(self, inputs):
        return no_gradient(inputs)

def overflows():
    found = model()
    inner = keras.optimizers.SGD(0.001)
    found.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=1e38, dynamic_growth_steps=1000), loss="mse")
    return found

def infinite_gradients():
    return model(NoGradient())

@tf.custom_gradient
def spoiled(inputs):
    # An infinite gradient of a finite loss, of one batch: as that of sqrt at 0.
    factor = tf.where(tf.reduce_any(tf.abs(inputs) > 1e4), np.inf, 1.0)
    return tf.identity(inputs), lambda gradient: gradient * factor

class Spoiled(keras.layers.Layer):
    def call(self, inputs):
        return spoiled(inputs)

class Hidden(keras.layers.Layer):
    def call(self, inputs):
        return tf.where(tf.math.is_finite(inputs), inputs, 0.0)

def spoils():
    return model(Spoiled())
"""
FAR = MINE.replace("= np.nan", "= 1e6")
"""One batch has an input for which the loss is finite."""
HUGE = MINE.replace("= np.nan", "= 1e25")
"""One batch has an input whose variance float32 cannot hold."""
OVERFLOWS = FAR.replace("np.inf, 1.0", "1e20, 1.0")
"""One batch has gradients whose squares float32 cannot hold. The mean of the squares is infinite from then on, and
RMSprop divides by it: the weights stay as they are, finite. Adam makes a NaN of it one step later."""
ARGUMENTS = (
    "--model=mine:model", "--data=mine:data", "--no-shuffle", "--batch-size=8", "--epochs=1",
    "--checkpoint-every-steps=10", "--checkpoint-keep=2", "--optimizer=adam", "--learning-rate=0.001",
)  # fmt: skip
STAGED = """
class Infinite(keras.layers.Layer):
    def call(self, inputs):
        return tf.where(tf.abs(inputs) > 1e4, np.inf, inputs)

def second_stage_spoils():
    return staged(Spoiled())

def second_stage_is_infinite():
    return staged(Infinite())

def staged(*layers):
    found = keras.Sequential([
        keras.Input((4,)), keras.layers.Dense(4, use_bias=False), keras.layers.Dense(4, use_bias=False, name="cut"),
        *layers, keras.layers.Dense(1),
    ])
    found.compile(loss="mse")
    return found

def hides_all():
    return staged(Spoiled(), Hidden())

def spoils_and_normalizes():
    return staged(Spoiled(), keras.layers.BatchNormalization())
"""


def saved(job: Job) -> list[int]:
    """The steps that have a checkpoint."""
    return sorted(int(path.stem.removeprefix("ckpt-")) for path in job.checkpoints.glob("ckpt-*.index"))


def weights(job: Job, step: int) -> list[Any]:
    """All numbers of a checkpoint's weights."""
    found = tensors(job.checkpoints / f"ckpt-{step}")
    return [np.frombuffer(found[name], "float32") for name in sorted(found) if name.startswith("weights")]


def expected(folder: Path, build: str, *, bad: Sequence[int] = (BAD_STEP,), epochs: int = 1) -> list[Any]:
    """The weights that plain Keras comes to without these batches of each epoch."""
    import importlib.util

    import keras

    spec = importlib.util.spec_from_file_location("mine", folder / "mine.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    keras.utils.set_random_seed(0)
    model = getattr(program, build)()
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
    for _ in range(epochs):
        for number, (inputs, labels) in enumerate(program.data()["training"].batch(8), start=1):
            if number not in bad:
                model.train_on_batch(inputs, labels)
    return [weight.numpy().ravel() for weight in model.weights]
