"""Models of a given number of weights, and made-up data for them: what `scaling.py` has the trainer train.

The width decides the number, so that there are four layers of each size; real data would only hide what is measured.
"""

from __future__ import annotations

import os
from typing import Any

INPUTS = 64
CLASSES = 10
WIDTHS = {"0.1 M": 192, "1 M": 675, "10 M": 2205}
"""Number of weights, about -> width of the three hidden layers."""


def build() -> Any:
    """A dense network of the width in the environment."""
    import keras

    width = int(os.environ["BENCH_WIDTH"])
    layers = keras.layers
    hidden = [layers.Dense(width, activation="relu") for _ in range(3)]
    model = keras.Sequential([layers.Input((INPUTS,)), *hidden, layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss=loss)
    return model


def dataset() -> Any:
    """4,096 examples of noise."""
    import tensorflow as tf

    inputs = tf.random.stateless_normal((4096, INPUTS), seed=(1, 2))
    labels = tf.random.stateless_uniform((4096,), seed=(3, 4), maxval=CLASSES, dtype=tf.int64)
    whole = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return {"training": whole.skip(819), "held_out": whole.take(819)}
