"""From what files call a class to its number. No lookup tables: those of parameter servers live elsewhere."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

MAX_CLASSES = 1000


def in_order(values: Iterable[str]) -> tuple[str, ...]:
    """Distinct values: by their size where all are whole numbers, else by the alphabet."""
    distinct = set(values)
    if all(value.removeprefix("-").isdecimal() for value in distinct):
        return tuple(sorted(distinct, key=int))
    return tuple(sorted(distinct))


def number_of(values: Any, names: Sequence[str]) -> Any:
    """string [batch] -> int64 [batch]: the place of each value among the names.

    Raises:
        InvalidArgumentError: when it runs, for a value that is not among them.
    """
    same = matches(values, names)
    known = tf.debugging.assert_equal(tf.reduce_any(same, axis=1), True, message="a label that was not seen before")
    with tf.control_dependencies([known] if known is not None else []):
        return tf.argmax(tf.cast(same, tf.int32), axis=1)


def one_hot(values: Any, names: Sequence[str]) -> Any:
    """string [batch] -> float32 [batch, names]: zeros for a value that is not among them."""
    return tf.cast(matches(values, names), tf.float32)


def matches(values: Any, names: Sequence[str]) -> Any:
    """string [batch] -> bool [batch, names]."""
    return tf.equal(values[:, tf.newaxis], tf.constant(list(names), tf.string)[tf.newaxis, :])
