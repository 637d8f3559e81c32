"""A small model that soon learns its examples by heart, so that its loss on held-out examples rises again."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

EXAMPLES, HELD_OUT, FEATURES = 48, 40, 8


def dataset() -> dict[str, Any]:
    """A class that follows from half of the numbers, with some labels wrong."""
    random = np.random.default_rng(3)
    inputs = random.standard_normal((EXAMPLES + HELD_OUT, FEATURES)).astype("float32")
    labels = (inputs[:, :4].sum(axis=1) > 0).astype("int64")
    wrong = random.random(len(labels)) < 0.15
    labels[wrong] = 1 - labels[wrong]
    whole = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return {"training": whole.take(EXAMPLES), "held_out": whole.skip(EXAMPLES)}


def build() -> Any:
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(32, "tanh", kernel_initializer=keras.initializers.GlorotUniform(1)),
            keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(2)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.02, momentum=0.9), loss=loss, metrics=["accuracy"])
    return model


def drops() -> Any:
    """The same with what draws, and what keeps statistics."""
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(32, "tanh", kernel_initializer=keras.initializers.GlorotUniform(1)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2, seed=5),
            keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(2)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.02, momentum=0.9), loss=loss)
    return model
