"""What the models of the table in `parity_cases.py` share: data, and a small model of either Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

EXAMPLES = 96
HELD_OUT = 24
FEATURES, CLASSES = 6, 3


def dataset(inputs: Any, labels: Any) -> dict[str, Any]:
    """The first examples to train on, the rest held out."""
    whole = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return {"training": whole.take(EXAMPLES), "held_out": whole.skip(EXAMPLES)}


def points() -> dict[str, Any]:
    """Vectors and a class for each."""
    random = np.random.default_rng(1)
    inputs = random.standard_normal((EXAMPLES + HELD_OUT, FEATURES)).astype("float32")
    return dataset(inputs, (inputs @ random.standard_normal((FEATURES, CLASSES))).argmax(axis=1).astype("int64"))


def shuffled() -> dict[str, Any]:
    """Points in another order each time, of which the first are held out."""
    parts = points()
    mixed = parts["training"].concatenate(parts["held_out"]).shuffle(EXAMPLES + HELD_OUT)
    return {"training": mixed.skip(HELD_OUT), "held_out": mixed.take(HELD_OUT)}


def spoiled() -> dict[str, Any]:
    """Points, with a NaN in the second half of the third batch of 24."""
    places = tf.data.Dataset.range(EXAMPLES + HELD_OUT)
    return {
        name: tf.data.Dataset.zip(part, places).map(lambda one, place: (tf.where(place == 68, np.nan, one[0]), one[1]))
        for name, part in points().items()
    }


def dense(optimizer: Any, library: Any = keras, **layer: Any) -> Any:
    """A small model of either Keras, compiled.

    Args:
        layer: more arguments of its first layer.
    """
    model = library.Sequential(
        [
            library.Input((FEATURES,)),
            library.layers.Dense(8, activation="tanh", name="first", **layer),
            library.layers.Dense(CLASSES, name="last"),
        ]
    )
    model.compile(optimizer=optimizer, loss=library.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
