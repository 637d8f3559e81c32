"""What the models of the table in `parity.py` share: data, and a small model of either Keras."""

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
