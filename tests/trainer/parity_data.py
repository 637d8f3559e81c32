"""The data of the models in `parity_models.py`: datasets of single examples, to train on and held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

EXAMPLES = 96
HELD_OUT = 24
FEATURES, CLASSES = 6, 3
VOCABULARY, LENGTH = 7, 5


def dataset(*columns: Any) -> dict[str, Any]:
    """The first examples to train on, the rest held out."""
    whole = tf.data.Dataset.from_tensor_slices(columns)
    return {"training": whole.take(EXAMPLES), "held_out": whole.skip(EXAMPLES)}


def numbers() -> tuple[Any, Any]:
    """Vectors and a class for each."""
    random = np.random.default_rng(1)
    inputs = random.standard_normal((EXAMPLES + HELD_OUT, FEATURES)).astype("float32")
    return inputs, (inputs @ random.standard_normal((FEATURES, CLASSES))).argmax(axis=1).astype("int64")


def words() -> tuple[Any, Any]:
    """Sequences of different lengths, padded with 0, and a class for each position."""
    random = np.random.default_rng(2)
    count = EXAMPLES + HELD_OUT
    ids = random.integers(1, VOCABULARY, (count, LENGTH))
    # Short ones first within a batch: the replicas have different numbers of positions that count.
    ids *= np.arange(LENGTH) < np.tile(np.arange(24) // 6 + 1, count // 24)[:, None]
    return ids.astype("int32"), (ids % CLASSES).astype("int64")


def mapped(example: Callable[[Any, Any], Any]) -> Callable[[], dict[str, Any]]:
    """Vectors and classes, of which the function makes the examples."""
    return lambda: {name: part.map(example) for name, part in dataset(*numbers()).items()}


def shuffled() -> dict[str, Any]:
    """In another order each time, of which the first are held out."""
    mixed = tf.data.Dataset.from_tensor_slices(numbers()).shuffle(EXAMPLES + HELD_OUT)
    return {"training": mixed.skip(HELD_OUT), "held_out": mixed.take(HELD_OUT)}


def spoiled() -> dict[str, Any]:
    """With a NaN in the second half of the third batch of 24."""
    inputs, labels = numbers()
    inputs[68] = np.nan
    return dataset(inputs, labels)


def ragged_tokens() -> dict[str, Any]:
    """Sequences of different lengths without padding, and a class for each."""
    ids, labels = words()
    return dataset(tf.ragged.boolean_mask(ids, ids > 0), labels[:, 0])


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "points": lambda: dataset(*numbers()),
    "tokens": lambda: dataset(*words()),
    "shuffled": shuffled,
    "spoiled": spoiled,
    "ragged_tokens": ragged_tokens,
    # Labels of -1 where there is nothing to learn.
    "ignored": lambda: dataset(words()[0], np.where(words()[0] > 0, words()[1], -1)),
    # A weight for each example, which grows within a batch.
    "weighted": lambda: dataset(*numbers(), np.tile(np.arange(24) / 12, 5).astype("float32")),
    "one_hot_points": mapped(lambda x, label: (x, tf.one_hot(label, CLASSES))),
    "multi_label_points": mapped(lambda x, label: (x, tf.cast(x[:CLASSES] > 0, tf.float32))),
    "pairs": mapped(lambda x, label: ({"left": x[:2], "right": x[2:]}, {"kind": label, "size": x[:1]})),
    # A large mean, a small deviation.
    "raw_points": mapped(lambda x, label: (1000 + 0.1 * x, label)),
    "series": mapped(lambda x, label: (x[:LENGTH, None], label)),
    "yes_or_no": mapped(lambda x, label: (x, tf.reshape(label == 0, [1]))),
    "single_values": mapped(lambda x, label: (x, x[0] ** 2 + x[1])),
    "values": mapped(lambda x, label: (x, x[:1] ** 2 + x[1:2])),
}
globals().update(DATA)
