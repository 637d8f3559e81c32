"""How a `compute_loss` of the user's divides over replicas: found by trying it on parts of a batch. Imports TensorFlow.

Nothing in Keras says it. The loss of a batch is the mean over its examples, or their sum, or neither, as one that
compares examples with each other. What is tried includes what a loss may leave out of its mean: labels and inputs of
padding, and outputs that are large or small.
"""

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.user_code.loss_of_parts import IGNORED_LABELS

log = logging.getLogger(__name__)

Compute = Callable[[Any, Any, Any, Any], Any]
EXAMPLES = 32
"""To try it on."""
_MIN_ROWS = 6
_TOLERANCE = 1e-5


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
