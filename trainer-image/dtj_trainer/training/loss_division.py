"""How a loss divides over replicas: found by trying it on numbers, and on parts of a batch. Imports TensorFlow.

Nothing in Keras says it. Most losses give each example a value that depends on this example alone. Others give one
number for a batch, which may be a mean or a sum over the examples, or neither, as a Dice loss of the whole batch. Again
others compare examples with each other; so may a `compute_loss` of the user's. Labels and outputs are made up by their
type and shape, since a step that is traced has no values. What is tried includes what a loss may leave out of its mean:
labels and inputs of padding, and outputs that are large or small.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3

log = logging.getLogger(__name__)

_LARGEST = 2_000_000
"""Numbers in made-up outputs; more dimensions than fit are made shorter."""
_SHORT = 16
_UNKNOWN = 3
"""In place of a dimension without a size."""
IGNORED_LABELS = (0, -1, -100, 255)
"""Labels that often stand for none."""
Compute = Callable[[Any, Any, Any, Any], Any]
EXAMPLES = 32
"""To try it on."""
_MIN_ROWS = 6
_TOLERANCE = 1e-5
"""Of the largest of the losses. What float32 rounds in sums of some tens of examples is a tenth of it."""


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


def agreeing(whole: Any, first: Any, rest: Any, *, share: float, tolerance: float = _TOLERANCE) -> set[Parts]:
    """What three losses agree with: of a batch, of its first examples, of the others.

    Args:
        share: of the examples that the first ones are.
        tolerance: of the largest of the losses.
    """
    whole, first, rest = (np.asarray(one) for one in (whole, first, rest))
    if not all(np.isfinite(one).all() for one in (whole, first, rest)):
        return set(Parts)
    limit = tolerance * max(float(np.abs(one).max(initial=0)) for one in (whole, first, rest)) + 1e-7
    if whole.ndim:
        each = np.concatenate([first, rest])
        return {Parts.EACH} if each.shape == whole.shape and (np.abs(each - whole) <= limit).all() else set()
    combined = {Parts.MEAN: share * first + (1 - share) * rest, Parts.SUM: first + rest}
    return {one for one, value in combined.items() if abs(value - whole) <= limit}


def _found(tries: Iterable[Callable[[slice], Any]], rows: int) -> Parts:
    """What all tries agree with.

    Args:
        tries: each gives the loss of a part of a batch. The first has to; a loss need not take what else is tried.
    """
    possible = set(Parts) - {Parts.NONE}
    first = rows // 3
    for number, loss in enumerate(tries):
        try:
            values = [loss(part) for part in (slice(0, rows), slice(0, first), slice(first, rows))]
        except Exception as error:
            if not number:
                raise
            log.debug(f"a loss does not take what is tried: {error}")
            continue
        possible &= agreeing(*values, share=first / rows)
    return next((one for one in Parts if one in possible), Parts.NONE)


def loss_of_parts(loss: Callable[[Any, Any], Any], labels: Any, outputs: Any) -> Parts | None:
    """How a loss divides; None if that cannot be found out, because it draws, or takes no numbers that are made up.

    Args:
        loss: (labels, outputs) -> the loss of a batch, not reduced.
        labels: of which the type and the shape are taken; may be symbolic.
        outputs: as the labels.
    """
    try:
        with tf.init_scope():
            made_outputs = made_up(outputs, rows=_MIN_ROWS)
            made_labels = made_up(labels, rows=_MIN_ROWS, outputs=made_outputs)
            if not np.array_equal(*(loss(made_labels, made_outputs) for _ in range(2)), equal_nan=True):
                return None
            tries = (
                lambda part, tried=tried: loss(_part(tried, part), _part(made_outputs, part))
                for tried in _labels_tried(made_labels, _MIN_ROWS)
            )
            return _found(tries, _MIN_ROWS)
    except Exception as error:  # noqa: BLE001 - a loss need not take numbers that are made up
        log.debug(f"a loss does not take numbers that are made up: {error}")
        return None


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


def division(model: Any, compute: Compute, examples: tuple[Any, Any, Any]) -> Parts:
    """How the loss of a model of Keras 3 divides; none of them also if it changes the model, or there are too few.

    Args:
        compute: (inputs, labels, outputs, weights) -> the loss of a batch.
        examples: inputs, labels and weights of EXAMPLES or fewer.
    """
    rows = int(tf.shape(tf.nest.flatten(examples)[0])[0])
    if rows < _MIN_ROWS:
        return Parts.NONE
    tries = (
        lambda part, batch=batch, scale=scale: _loss(
            model, compute, _part(batch, part), None if scale is None else scale[part]
        )
        for batch, scale in _tried(examples, rows)
    )
    try:
        return _found(tries, rows)
    except _ChangesModel:
        return Parts.NONE


class _ChangesModel(Exception):
    """A loss sets variables of the model."""


def _tried(examples: tuple[Any, Any, Any], rows: int) -> Iterator[tuple[tuple[Any, Any, Any], Any]]:
    """Batches, and what their outputs are multiplied by, if anything; the first part differs from the rest."""
    inputs, labels, weights = examples
    for tried in _labels_tried(labels, rows):
        yield (inputs, tried, weights), None
    yield (_with_value(inputs, rows, 0), labels, weights), None
    if weights is not None:
        yield (inputs, labels, _with_value(weights, rows, 0)), None
    yield examples, np.where(np.arange(rows) < rows // 3, 10.0, 0.1)


def _labels_tried(labels: Any, rows: int) -> Iterator[Any]:
    yield labels
    for value in IGNORED_LABELS:
        yield _with_value(labels, rows, value)


def _with_value(values: Any, rows: int, value: int) -> Any:
    """With this value in half of the first part, where values of this type can have it.

    A loss that leaves them out is a mean of the other half.
    """
    places = (np.arange(rows) < rows // 3) & (np.arange(rows) % 2 == 0)

    def with_value(one: Any) -> Any:
        dtype = one.dtype
        known = not isinstance(one, tf.RaggedTensor) and (dtype.is_floating or dtype.is_integer)
        if not known or not dtype.min <= value <= dtype.max:
            return one
        return tf.where(tf.reshape(tf.constant(places), [-1, *[1] * (one.shape.rank - 1)]), tf.cast(value, dtype), one)

    return tf.nest.map_structure(with_value, values)


def _part(values: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda one: None if one is None else one[part], values)


def _loss(model: Any, compute: Compute, batch: tuple[Any, Any, Any], scale: Any) -> float:
    """The loss of a batch. Dropout is left out, and BatchNormalization has no statistics of this batch.

    Raises:
        _ChangesModel: it would change the model, which stays as it is.
    """
    inputs, labels, weights = batch
    before = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
    with keras.StatelessScope(state_mapping=before, collect_losses=True) as scope, keras3.as_on_one_replica():
        outputs = model(inputs, **keras3.call_arguments(model, training=False))
        if scale is not None:
            outputs = tf.nest.map_structure(lambda one: _scaled(one, scale), outputs)
        loss = compute(inputs, labels, outputs, weights)
        for variable, value in before:
            same = {"equal_nan": variable.dtype.startswith("float")}
            if not keras3.is_seed(variable) and not np.array_equal(scope.get_current_value(variable), value, **same):
                raise _ChangesModel
        return float(tf.reduce_sum(loss))


def _scaled(outputs: Any, scale: Any) -> Any:
    mask = keras3.mask_of(outputs)
    factors = tf.reshape(tf.cast(scale, outputs.dtype), [-1, *[1] * (outputs.shape.rank - 1)])
    scaled = outputs * factors
    if mask is not None:
        keras3.put_mask(scaled, mask)
    return scaled
