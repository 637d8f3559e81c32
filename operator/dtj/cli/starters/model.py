"""A model and its data, as two functions. The trainer does the rest: strategy, batches, checkpoints, export.

`dtj run job.yaml` calls it as

    python -m dtj_trainer --model=train:model --data=train:data --epochs=10
"""

import keras
import numpy as np
import tensorflow as tf


def model() -> keras.Model:
    """Your model, compiled: the loss and the optimizer are taken from here.

    This one predicts which of two spirals a point lies on.
    """
    layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1, "sigmoid")]
    made = keras.Sequential([keras.Input((2,)), *layers])
    made.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")
    return made


def data() -> dict[str, tf.data.Dataset]:
    """Your examples, one by one, as (inputs, label), always in the same order: no .batch(), no .repeat().

    The trainer shuffles and batches those for the training, shares them among the workers, and evaluates the model
    on those that are held out.
    """
    labels = np.arange(2000) % 2
    turn = np.linspace(0.25, 1.5, 2000) * 2 * np.pi
    angle = turn + labels * np.pi
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1).astype("float32") / 10
    held_out = np.arange(2000) // 2 % 5 == 4
    parts = {"training": ~held_out, "held_out": held_out}
    return {name: tf.data.Dataset.from_tensor_slices((points[part], labels[part])) for name, part in parts.items()}
