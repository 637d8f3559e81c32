"""How a loss divides over replicas: found by trying it on numbers, and on parts of a batch. Imports TensorFlow.

Nothing in Keras says it. Most losses give each example a value that depends on this example alone. Others give one
number for a batch, which may be a mean or a sum over the examples, or neither, as a Dice loss of the whole batch. Again
others compare examples with each other; so may a `compute_loss` of the user's. Labels and outputs are made up by their
type and shape, since a step that is traced has no values. What is tried includes what a loss may leave out of its mean:
labels and inputs of padding, and outputs that are large or small.
"""

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3

log = logging.getLogger(__name__)

_ROWS, _FIRST = 6, 2
_LARGEST = 2_000_000
"""Numbers in made-up outputs; more dimensions than fit are made shorter."""
_SHORT = 16
_UNKNOWN = 3
"""In place of a dimension without a size."""
IGNORED_LABELS = (0, -1, -100, 255)
"""Labels that often stand for none."""
_PARTS_TOLERANCE = 1e-4
Compute = Callable[[Any, Any, Any, Any], Any]
EXAMPLES = 32
"""To try it on."""
_MIN_ROWS = 6
_TOLERANCE = 1e-5


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
    for number, (made_labels, made_outputs) in enumerate(_labels_and_outputs(labels, outputs)):
        parts = [slice(0, _ROWS), slice(0, _FIRST), slice(_FIRST, _ROWS)]
        if not number:
            parts.append(parts[0])
        try:
            values = [np.asarray(loss(_rows_of(made_labels, one), _rows_of(made_outputs, one))) for one in parts]
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
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=_PARTS_TOLERANCE, atol=1e-7))


def _labels_and_outputs(labels: Any, outputs: Any) -> Iterator[tuple[Any, Any]]:
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


def _rows_of(values: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda one: one[part], values)


class Division(Enum):
    """What the loss of a batch is of the losses of its examples."""

    MEAN = "mean"
    SUM = "sum"


def division(model: Any, compute: Compute, examples: tuple[Any, Any, Any]) -> Division | None:
    """How the loss of a model of Keras 3 divides; None if it is neither the mean nor the sum, or changes the model.

    Args:
        compute: (inputs, labels, outputs, weights) -> the loss of a batch.
        examples: inputs, labels and weights of EXAMPLES or fewer.
    """
    rows = int(tf.shape(tf.nest.flatten(examples)[0])[0])
    first = rows // 3
    if rows < _MIN_ROWS:
        return None
    possible = set(Division)
    for number, (batch, scale) in enumerate(_tried(examples, first, rows)):
        parts = slice(0, rows), slice(0, first), slice(first, rows)
        try:
            losses = [
                _loss(model, compute, _part(batch, part), None if scale is None else scale[part]) for part in parts
            ]
        except Exception as error:
            # A loss need not take the labels that are tried; it has to take those of the data.
            if not number:
                raise
            log.debug(f"compute_loss does not take what is tried: {error}")
            continue
        known = [one for one in losses if one is not None]
        if len(known) < len(parts):
            return None
        whole, *each = known
        if not np.isfinite([whole, *each]).all():
            continue
        limit = _TOLERANCE * max(abs(whole), *map(abs, each)) + 1e-9
        combined = {
            Division.MEAN: (first * each[0] + (rows - first) * each[1]) / rows,
            Division.SUM: each[0] + each[1],
        }
        possible = {one for one in possible if abs(combined[one] - whole) <= limit}
    return next((one for one in Division if one in possible), None)


def _tried(examples: tuple[Any, Any, Any], first: int, rows: int) -> Iterator[tuple[tuple[Any, Any, Any], Any]]:
    """Batches, and what their outputs are multiplied by, if anything; the first part differs from the rest.

    Half of the first part has other values: a loss that leaves them out is a mean of the other half.
    """
    inputs, labels, weights = examples
    begins = np.arange(rows) < first
    half = begins & (np.arange(rows) % 2 == 0)

    def with_value(values: Any, value: int) -> Any:
        return tf.nest.map_structure(lambda one: _with_value(one, half, value), values)

    yield examples, None
    for value in IGNORED_LABELS:
        yield (inputs, with_value(labels, value), weights), None
    yield (with_value(inputs, 0), labels, weights), None
    if weights is not None:
        yield (inputs, labels, with_value(weights, 0)), None
    yield examples, np.where(begins, 10.0, 0.1)


def _with_value(values: Any, rows: Any, value: int) -> Any:
    """The same with this value in these rows, if values of this type can be."""
    dtype = values.dtype
    if (
        isinstance(values, tf.RaggedTensor)
        or not (dtype.is_floating or dtype.is_integer)
        or not (dtype.min <= value <= dtype.max)
    ):
        return values
    rows = tf.reshape(tf.constant(rows), [-1, *[1] * (values.shape.rank - 1)])
    return tf.where(rows, tf.cast(value, dtype), values)


def _part(batch: tuple[Any, Any, Any], part: slice) -> tuple[Any, Any, Any]:
    found: tuple[Any, Any, Any] = tf.nest.map_structure(lambda one: None if one is None else one[part], batch)
    return found


def _loss(model: Any, compute: Compute, batch: tuple[Any, Any, Any], scale: Any) -> float | None:
    """The loss of a batch; None if it changes the model. Nothing is changed.

    Dropout is left out, and BatchNormalization has no statistics of this batch.
    """
    inputs, labels, weights = batch
    before = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
    with keras.StatelessScope(state_mapping=before, collect_losses=True) as scope, keras3.as_on_one_replica():
        outputs = model(inputs, **keras3.call_arguments(model, training=False))
        if scale is not None:
            outputs = tf.nest.map_structure(lambda one: _scaled(one, scale), outputs)
        loss = compute(inputs, labels, outputs, weights)
        changed = any(
            not np.array_equal(scope.get_current_value(variable), value, equal_nan=variable.dtype.startswith("float"))
            for variable, value in before
            if not keras3.is_seed(variable)
        )
        return None if changed else float(tf.reduce_sum(loss))


def _scaled(outputs: Any, scale: Any) -> Any:
    mask = keras3.mask_of(outputs)
    factors = tf.reshape(tf.cast(scale, outputs.dtype), [-1, *[1] * (outputs.shape.rank - 1)])
    scaled = outputs * factors
    if mask is not None:
        keras3.put_mask(scaled, mask)
    return scaled
