"""Examples that a layer is tried on: real ones, some of them, and the same in other sizes and with other values.

Imports TensorFlow.
"""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.training.loss_division import by_row, rows_of, times

EXAMPLES = 12
"""To look with; more show no more."""
_MIN_ROWS = 6


def _of_each(values: Any, change: Callable[[Any], Any]) -> Any:
    """Of a structure of tensors, with their masks."""

    def changed(one: Any) -> Any:
        if one is None:
            return None
        mask, result = keras3.mask_of(one), change(one)
        if mask is not None:
            keras3.put_mask(result, change(mask))
        return result

    return keras.tree.map_structure(changed, values)


def chosen(values: Any, rows: Any) -> Any:
    """Examples, by their places."""

    def of(one: Any) -> Any:
        if isinstance(one, tf.SparseTensor):
            size = [1, *one.shape[1:]]
            return tf.sparse.concat(0, [tf.sparse.slice(one, [row, *[0] * (len(size) - 1)], size) for row in rows])
        return tf.gather(one, rows)

    return _of_each(values, of)


def enough(inputs: Any) -> Any:
    """At least `_MIN_ROWS` examples; where these are varied, no two are the same."""
    rows = rows_of(inputs)
    if rows >= _MIN_ROWS:
        return chosen(inputs, np.arange(min(rows, EXAMPLES)))
    more = np.repeat(np.arange(rows), -(-_MIN_ROWS // rows))

    def turned(one: Any) -> Any:
        if _is_dense(one) and one.dtype.is_integer and one.shape.rank > 1 and one.shape[1]:
            steps = (np.arange(one.shape[1]) + np.arange(len(more))[:, None]) % one.shape[1]
            return tf.gather(one, steps, batch_dims=1, axis=1)
        return one

    return times(_of_each(chosen(inputs, more), turned), np.linspace(1.0, 0.7, len(more)))


def varied(inputs: Any) -> Iterator[Any]:
    """The same in different sizes, and moved to both sides, so that what they have in common proves nothing.

    A loss that counts what a layer chooses, say, is a mean as long as all examples choose the same; and where both
    parts have the token with the largest number, their largest numbers are those of all.
    """
    values = tf.nest.flatten(inputs)
    if any(_is_dense(one) and not one.dtype.is_floating for one in values):
        yield _of_each(inputs, _with_others_in_each_part)
    if not any(one.dtype.is_floating for one in values):
        return
    place, rows = np.arange(rows_of(inputs)), rows_of(inputs)
    yield times(inputs, np.where(place % 2, 0.1, 1.0) * np.linspace(0.3, 1.0, rows))
    yield _of_each(inputs, lambda one: _moved(one, np.where(place % 3, 2.0, -2.0)))


def _moved(one: Any, by: Any) -> Any:
    """Each row moved by so many times the largest number, where they are numbers with a fraction."""
    if not _is_dense(one) or not one.dtype.is_floating:
        return tf.identity(one)
    return one + tf.reduce_max(tf.abs(one)) * by_row(by, one)


def _with_others_in_each_part(one: Any) -> Any:
    """Numbers without a fraction, and texts, of which the first third of the examples has none that the rest has."""
    if not _is_dense(one) or one.dtype.is_floating:
        return tf.identity(one)
    numbers = one.dtype.is_integer
    some, others = (tf.reduce_max(one, 0), tf.reduce_min(one, 0)) if numbers else (one[0], one[-1])
    rows = one.shape[0]
    return tf.stack([some] * (rows // 3) + [others] * (rows - rows // 3))


def _is_dense(one: Any) -> bool:
    return tf.is_tensor(one) and not isinstance(one, tf.RaggedTensor | tf.SparseTensor)
