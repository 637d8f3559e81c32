"""What the loss of a batch is of the losses of its parts, found by calling it on numbers. Imports TensorFlow.

Nothing in Keras says it. Most losses give each example a value that depends on this example alone. Others give one
number for a batch, which may be a mean or a sum over the examples, or neither, as a Dice loss of the whole batch. Again
others compare examples with each other. Labels and outputs are made up by their type and shape, since a step that is
traced has no values; they include labels that a loss may leave out of its mean.
"""

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import numpy as np
import tensorflow as tf

log = logging.getLogger(__name__)

_ROWS, _FIRST = 6, 2
_LARGEST = 2_000_000
"""Numbers in made-up outputs; more dimensions than fit are made shorter."""
_SHORT = 16
_UNKNOWN = 3
"""In place of a dimension without a size."""
IGNORED_LABELS = (0, -1, -100, 255)
"""Labels that often stand for none."""
_TOLERANCE = 1e-4


class Parts(Enum):
    """How a batch's loss comes of the losses of its parts."""

    EACH = "each"
    """A value for each example, of this example alone."""
    MEAN = "mean"
    """One number, the mean over the examples."""
    SUM = "sum"
    """One number, the sum over the examples."""
    NONE = "none"
    """None of these."""


def loss_of_parts(loss: Callable[[Any, Any], Any], labels: Any, outputs: Any) -> Parts | None:
    """How a loss divides; None if that cannot be found out, because it draws, or takes no numbers that are made up.

    Args:
        loss: (labels, outputs) -> the loss of a batch, not reduced.
        labels: of which the type and the shape are taken; may be symbolic.
        outputs: as the labels.
    """
    try:
        with tf.init_scope():
            return _found(loss, labels, outputs)
    except Exception as error:  # noqa: BLE001 - a loss need not take numbers that are made up
        log.debug(f"a loss does not take numbers that are made up: {error}")
        return None


def _found(loss: Callable[[Any, Any], Any], labels: Any, outputs: Any) -> Parts | None:
    possible = set(Parts) - {Parts.NONE}
    for number, (made_labels, made_outputs) in enumerate(_tried(labels, outputs)):
        parts = [slice(0, _ROWS), slice(0, _FIRST), slice(_FIRST, _ROWS)]
        if not number:
            parts.append(parts[0])
        try:
            values = [np.asarray(loss(_part(made_labels, one), _part(made_outputs, one))) for one in parts]
        except Exception:
            if not number:
                raise
            continue
        if not number and not np.array_equal(values[0], values.pop(), equal_nan=True):
            return None
        possible &= _of(*values)
    return next((one for one in Parts if one in possible), Parts.NONE)


def _of(whole: Any, first: Any, rest: Any) -> set[Parts]:
    """What three losses agree with: of a batch, of its first examples, of the others."""
    if not all(np.isfinite(one).all() for one in (whole, first, rest)):
        return set(Parts)
    if whole.ndim:
        return {Parts.EACH} if _equal(whole, np.concatenate([first, rest])) else set()
    mean = (_FIRST * first + (_ROWS - _FIRST) * rest) / _ROWS
    return {one for one, value in ((Parts.MEAN, mean), (Parts.SUM, first + rest)) if _equal(whole, value)}


def _equal(one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=_TOLERANCE, atol=1e-7))


def _tried(labels: Any, outputs: Any) -> Iterator[tuple[Any, Any]]:
    """Labels and outputs; the first part differs from the rest, and has a label that may stand for none."""
    made_outputs = made_up(outputs, rows=_ROWS)
    made_labels = made_up(labels, rows=_ROWS, outputs=made_outputs)
    yield made_labels, made_outputs
    rows = tf.range(_ROWS) == 0
    for value in IGNORED_LABELS:

        def with_value(one: Any, value: int = value) -> Any:
            if one.dtype.is_bool or not one.dtype.min <= value <= one.dtype.max:
                return one
            return tf.where(tf.reshape(rows, [-1, *[1] * (one.shape.rank - 1)]), tf.cast(value, one.dtype), one)

        yield tf.nest.map_structure(with_value, made_labels), made_outputs


def made_up(values: Any, *, rows: int, outputs: Any = None) -> Any:
    """Tensors of these types and shapes, with this number of examples.

    Args:
        values: a structure of tensors or specifications; tensors may be symbolic.
        outputs: of a model, whose last dimension is the number of classes that integers may name; None: two.

    Raises:
        TypeError: a type or shape of which nothing is made up.
    """
    random = np.random.default_rng(0 if outputs is None else 1)
    sizes = [int(one.shape[-1] or 0) for one in tf.nest.flatten(outputs) if one is not None and len(one.shape) > 1]
    classes = max(2, min(sizes, default=2))

    def numbers(one: Any) -> Any:
        if one is None:
            return None
        dtype, shape = tf.as_dtype(one.dtype), _shape(one, rows)
        if dtype.is_floating:
            made = random.uniform(0.05, 0.95, shape)
            made[: rows // 3] *= 0.5
        elif dtype.is_integer or dtype.is_bool:
            made = random.integers(1, classes, shape)
        elif dtype == tf.string:
            return tf.fill(shape, "a")
        else:
            raise TypeError(f"no {dtype.name} is made up")
        return tf.cast(tf.constant(made), dtype)

    return tf.nest.map_structure(numbers, values)


def _shape(one: Any, rows: int) -> list[int]:
    if isinstance(one, tf.RaggedTensor | tf.SparseTensor) or one.shape.rank is None or not one.shape.rank:
        raise TypeError("its shape is not known")
    shape = [rows, *(size or _UNKNOWN for size in one.shape[1:])]
    if np.prod(shape) > _LARGEST:
        shape = [min(size, _SHORT) for size in shape]
    return shape


def _part(values: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda one: one[part], values)
