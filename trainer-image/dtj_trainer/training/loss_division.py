"""How a loss divides over replicas: found by trying it on examples, and on parts of them. Imports TensorFlow.

Nothing in Keras says it. Most losses give each example a value that depends on this example alone. Others give one
number for a batch, which may be a mean or a sum over the examples. Again others leave examples out of their mean, or
compare them with each other, as a Dice loss of the whole batch; so may a `compute_loss` of the user's. A loss is tried
on real examples, with the outputs that the model gives for them: what it gives for all, and the gradient of each
output, is compared with what it gives for two parts of different sizes. It is also tried on the same examples with
other labels and outputs, since the first batch need not have what a loss leaves out. What is neither a mean nor a sum
is no error: see `distribution.gathering`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import values_here

log = logging.getLogger(__name__)

IGNORED_LABELS = (0, -1, -100, 255)
"""Labels that often stand for none."""
Compute = Callable[[Any, Any, Any, Any], Any]
EXAMPLES = 32
"""To try it on."""
_MIN_ROWS = 6
_TOLERANCE = 1e-5
"""Of the largest of the losses, and of the gradients. What float32 rounds in sums of some tens of examples is a tenth
of it."""
_NOISE = 1e-3
"""Of the largest: a loss that differs more for the same examples in another order depends on it, or on chance."""
_TIMES = 10.0
"""What differs by this many times the noise is no noise."""


class Parts(Enum):
    """How a batch's loss comes of the losses of its parts."""

    EACH = "each"
    """A value for each example, of this example alone."""
    VALUES = "values"
    """Values of single examples, but another number of them than there are examples."""
    MEAN = "mean"
    """One number, the mean over the examples."""
    SUM = "sum"
    """One number, the sum over the examples."""
    NONE = "none"
    """None of these, or not known: only the loss of all examples is right."""


@dataclass(frozen=True)
class Tried:
    """What a loss gave for some examples.

    Attributes:
        values: the loss, not reduced.
        gradients: of the sum of the values, for each of the outputs.
        steps: between two numbers of the type that each of these has, as a part of them.
        of_weights: some numbers of the gradients of weights.
        step: between two numbers of the type that the values have, as a part of them.
    """

    values: Any
    gradients: tuple[Any, ...] = ()
    steps: tuple[float, ...] = ()
    of_weights: Any = ()
    step: float = 0.0

    @property
    def total(self) -> Any:
        """The sum of the values."""
        return np.sum(self.values)

    @property
    def finite(self) -> bool:
        """Whether all is."""
        return all(np.isfinite(one).all() for one in (self.values, *self.gradients, self.of_weights))


def agreeing(whole: Any, first: Any, rest: Any, *, share: float, tolerance: float = _TOLERANCE) -> set[Parts]:
    """What three losses agree with: of a batch, of its first examples, of the others.

    Args:
        share: of the examples that the first ones are.
        tolerance: of the largest of the losses.
    """
    whole, first, rest = (np.asarray(one) for one in (whole, first, rest))
    if not all(np.isfinite(one).all() for one in (whole, first, rest)):
        return set(Parts)
    # What is summed may be much larger than the sum.
    least = 1e-7 + tolerance * max(float(np.abs(one).max(initial=0)) for one in (first, rest))
    if whole.ndim:
        each = np.concatenate([first, rest]) if first.ndim else first
        return {Parts.EACH, Parts.VALUES} if _near(each, whole, tolerance=tolerance, least=least) else set()
    return _combining(whole, first, rest, share=share, tolerance=tolerance, least=least)


def _combining(
    whole: Any, first: Any, rest: Any, *, share: float, tolerance: float, least: float = 1e-30
) -> set[Parts]:
    """Whether two parts together, as a mean or as a sum, are what the whole is."""
    combined = {Parts.MEAN: share * first + (1 - share) * rest, Parts.SUM: first + rest}
    return {one for one, value in combined.items() if _near(value, whole, tolerance=tolerance, least=least)}


def _near(one: Any, other: Any, *, tolerance: float, least: float = 1e-30) -> bool:
    if one.shape != other.shape:
        return False
    limit = tolerance * max(float(np.abs(each).max(initial=0)) for each in (one, other)) + least
    return bool((np.abs(one - other) <= limit).all())


def _agreeing(whole: Tried, first: Tried, rest: Tried, *, share: float, tolerance: float) -> set[Parts]:
    if not (whole.finite and first.finite and rest.finite):
        return set(Parts)
    of_values = max(tolerance, whole.step)
    found = agreeing(whole.values, first.values, rest.values, share=share, tolerance=of_values)

    def same(one: float, other: float) -> bool:
        return all(
            _near(np.concatenate([one * a, other * b]), both, tolerance=max(tolerance, step))
            for a, b, both, step in zip(first.gradients, rest.gradients, whole.gradients, whole.steps, strict=True)
        )

    summed, by_share = same(1, 1), same(share, 1 - share)
    return {one for one in found if (by_share if one is Parts.MEAN else summed)}


def _noise(one: Tried, reversed_: Tried) -> float:
    """How far the same examples in another order give something else, as a part of the largest."""
    pairs = [(one.total, reversed_.total), *zip(one.gradients, (g[::-1] for g in reversed_.gradients), strict=True)]
    if not (one.finite and reversed_.finite):
        return 0.0
    return max(off(a, b) for a, b in pairs)


def off(one: Any, other: Any) -> float:
    """The largest difference, as a part of the largest number."""
    largest = max(float(np.abs(each).max(initial=0)) for each in (one, other))
    return float(np.abs(one - other).max(initial=0)) / (largest or 1.0)


Loss = Callable[[Any], Tried]
"""What a loss gives for the examples that an index chooses."""


def compared(rows: int) -> tuple[slice, slice, slice, slice]:
    """The parts of a batch that are compared: all examples, all in another order, the first third, and the rest."""
    first = rows // 3
    return slice(0, rows), slice(None, None, -1), slice(0, first), slice(first, rows)


class Evidence:
    """What batches show of a loss, each with the same examples in another order and with two parts of it."""

    def __init__(
        self, rows: int, *, known: Parts | None = None, tolerance: float = _TOLERANCE, of_weights: float = _TOLERANCE
    ) -> None:
        """Args:
        rows: examples in each batch.
        known: what was found before; it is found again where nothing contradicts it.
        tolerance: of the largest of the losses, and of the gradients of outputs.
        of_weights: the same of the gradients of weights; if these differ by more in another order, they show nothing.
        """
        self._known, self._tolerance, self._of_weights = known, tolerance, of_weights
        self._possible = set(Parts) - {Parts.NONE}
        self._first, self._rest = rows // 3, rows - rows // 3
        self._proved = False

    def add(self, whole: Tried, reversed_: Tried, first: Tried, rest: Tried) -> None:
        """Notes what the parts of a batch show, which `compared` gives."""
        noise = _noise(whole, reversed_)
        if noise > _NOISE:
            self._possible &= set(Parts) if self._known else set()
            return
        rows = self._first + self._rest
        tolerance = max(self._tolerance * (_TIMES if self._known else 1), _TIMES * noise)
        self._possible &= _agreeing(whole, first, rest, share=self._first / rows, tolerance=tolerance)
        if np.size(whole.of_weights) and whole.finite and first.finite and rest.finite:
            self._possible &= self._agreeing_of_weights(whole, reversed_, first, rest)
        sizes = zip((whole, first, rest), (rows, self._first, self._rest), strict=True)
        if np.ndim(whole.values) and any(len(one.values) != size for one, size in sizes):
            self._possible -= {Parts.EACH}
        self._proved |= whole.finite and any(np.any(one) for one in (whole.values, *whole.gradients, whole.of_weights))

    def _agreeing_of_weights(self, *each: Tried) -> set[Parts]:
        whole, reversed_, first, rest = (np.asarray(one.of_weights) for one in each)
        noise = off(whole, reversed_)
        if noise > max(_NOISE, self._of_weights):
            return set(Parts)
        tolerance = max(self._of_weights, _TIMES * noise)
        share = self._first / (self._first + self._rest)
        return _combining(whole, first, rest, share=share, tolerance=tolerance)

    @property
    def found(self) -> Parts | None:
        """What all batches agree with: NONE if there is no such thing; None if they say nothing."""
        if self._known:
            return self._known if self._known in self._possible else Parts.NONE
        if not self._possible:
            return Parts.NONE
        return next(one for one in Parts if one in self._possible) if self._proved else None


def _found(tries: Iterable[Loss], rows: int, known: Parts | None) -> Parts:
    """What all tries agree with; NONE also where they say nothing.

    Args:
        tries: the first has to work; a loss need not take what else is tried.
        known: what was found before; it is found again where nothing contradicts it.
    """
    evidence = Evidence(rows, known=known)
    for number, loss in enumerate(tries):
        try:
            evidence.add(*(loss(part) for part in compared(rows)))
        except Exception as error:
            if not number:
                raise
            log.debug(f"a loss does not take what is tried: {error}")
    return evidence.found or Parts.NONE


def loss_of_parts(loss: Callable[[Any, Any], Any], labels: Any, outputs: Any, *, known: Parts | None = None) -> Parts:
    """How a loss divides.

    Args:
        loss: (labels, outputs) -> the loss of a batch, not reduced.
        labels: real ones.
        outputs: of a model, for these.
        known: what was found before; it is found again where nothing contradicts it.

    Raises:
        Exception: what the loss raises for these labels and outputs.
    """
    rows = rows_of(outputs)
    if rows < _MIN_ROWS:
        labels, outputs = (repeated(one, rows) for one in (labels, outputs))
        rows = rows_of(outputs)
        outputs = times(outputs, np.linspace(1.0, 0.7, rows))

    def trying(labels: Any, outputs: Any) -> Loss:
        return lambda part: _with_gradients(lambda given: loss(part_of(labels, part), given), part_of(outputs, part))

    def tries() -> Iterator[Loss]:
        for tried in _labels_tried(labels, rows):
            yield trying(tried, outputs)
        for factors in _scales(rows):
            yield trying(labels, times(outputs, factors))
        yield trying(labels, _moved(outputs))

    return _found(tries(), rows, known)


def _scales(rows: int) -> Iterator[Any]:
    """Factors of outputs: large in the first part, large in some of each part, and of another sign."""
    place = np.arange(rows)
    yield np.where(place < rows // 3, 10.0, 0.1)
    yield np.where(place % 2 == 0, 10.0, 0.1)
    yield np.where(place < rows // 3, -1.0, 1.0)


def _moved(outputs: Any) -> Any:
    """Outputs that differ, where a model that begins with zeros gives the same for all; none gets negative by it."""
    random = np.random.default_rng(0)

    def moved(one: Any) -> Any:
        if isinstance(one, _NOT_DENSE) or not one.dtype.is_floating:
            return one
        return _with_mask_of(one, one + tf.cast(random.uniform(0.05, 0.2, one.shape), one.dtype))

    return keras.tree.map_structure(moved, outputs)


def _with_mask_of(before: Any, value: Any) -> Any:
    mask = keras3.mask_of(before)
    if mask is not None:
        keras3.put_mask(value, mask)
    return value


def _with_gradients(loss: Callable[[Any], Any], outputs: Any) -> Tried:
    floats = [one for one in tf.nest.flatten(outputs) if one.dtype.is_floating and not isinstance(one, _NOT_DENSE)]
    with tf.GradientTape() as tape:
        for one in floats:
            tape.watch(one)
        values = loss(outputs)
        total = tf.reduce_sum(values)
    gradients = tape.gradient(total, floats, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    steps = tuple(STEPS.get(one.dtype, 0.0) for one in floats)
    return Tried(_as_numbers(values), tuple(_as_numbers(one) for one in gradients), steps)


STEPS = {tf.bfloat16: 2.0**-7, tf.float16: 2.0**-10}
_NOT_DENSE = (tf.RaggedTensor, tf.SparseTensor)


def _as_numbers(values: Any) -> Any:
    return np.asarray(tf.cast(values, tf.float64))


def rows_of(values: Any) -> int:
    """How many examples a structure of tensors has."""
    first = next(one for one in tf.nest.flatten(values) if one is not None and one.shape.rank != 0)
    if isinstance(first, tf.SparseTensor):
        return int(first.dense_shape[0])
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])


def repeated(values: Any, rows: int) -> Any:
    """The same few examples, often enough to be divided."""
    times = -(-_MIN_ROWS // rows)
    return keras.tree.map_structure(lambda one: None if one is None else tf.concat([one] * times, 0), values)


def times(values: Any, factors: Any) -> Any:
    """A structure of tensors whose rows are multiplied by these factors, where they are numbers with a fraction."""

    def scaled(one: Any) -> Any:
        if isinstance(one, tf.SparseTensor) or not one.dtype.is_floating:
            return one
        if isinstance(one, tf.RaggedTensor):
            known = one.ragged_rank == 1 and one.flat_values.shape.rank == 1
            rows = tf.cast(tf.gather(factors, one.value_rowids()), one.dtype)
            return one.with_flat_values(one.flat_values * rows) if known else one
        return _with_mask_of(one, one * by_row(factors, one))

    return keras.tree.map_structure(lambda one: None if one is None else scaled(one), values)


def by_row(numbers: Any, one: Any) -> Any:
    """A number for each row of a dense tensor, in its type and with as many dimensions."""
    return tf.reshape(tf.cast(numbers, one.dtype), [-1, *[1] * (one.shape.rank - 1)])


def division(model: Any, compute: Compute, examples: tuple[Any, Any, Any], *, known: Parts | None = None) -> Parts:
    """How the loss of a model of Keras 3 divides.

    Args:
        compute: (inputs, labels, outputs, weights) -> the loss of a batch.
        examples: real inputs, labels and weights, some tens of them.
        known: what was found before; it is found again where nothing contradicts it.

    Raises:
        ChangesModel: it changes the model, which stays as it is.
        Exception: what it raises for these.
    """
    rows = rows_of(examples[0])
    if rows < _MIN_ROWS:
        examples = tuple(repeated(one, rows) for one in examples)
        rows = rows_of(examples[0])

    def trying(batch: tuple[Any, Any, Any], scale: Any) -> Loss:
        return lambda part: _loss(model, compute, part_of(batch, part), None if scale is None else scale[part])

    return _found((trying(*tried) for tried in _tried(examples, rows)), rows, known)


class ChangesModel(Exception):
    """A loss sets variables of the model."""


def _tried(examples: tuple[Any, Any, Any], rows: int) -> Iterator[tuple[tuple[Any, Any, Any], Any]]:
    """Batches, and what their outputs are multiplied by, if anything; the first part differs from the rest."""
    inputs, labels, weights = examples
    for tried in _labels_tried(labels, rows):
        yield (inputs, tried, weights), None
    yield (with_value(inputs, rows, 0), labels, weights), None
    if weights is not None:
        yield (inputs, labels, with_value(weights, rows, 0)), None
    for factors in _scales(rows):
        yield examples, factors


def _labels_tried(labels: Any, rows: int) -> Iterator[Any]:
    """These, with labels that stand for none in some, and with the same label in many: what is paired needs them."""
    yield labels
    for value in IGNORED_LABELS:
        yield with_value(labels, rows, value)
    same = np.where(np.arange(rows) % 2 == 0, 0, np.arange(rows))
    yield keras.tree.map_structure(
        lambda one: one if one is None or isinstance(one, _NOT_DENSE) else tf.gather(one, same), labels
    )


def with_value(values: Any, rows: int, value: int) -> Any:
    """With this value in half of the first part, where values of this type can have it.

    A loss that leaves them out is a mean of the other half.
    """
    places = (np.arange(rows) < rows // 3) & (np.arange(rows) % 2 == 0)

    def put(one: Any) -> Any:
        if one is None or isinstance(one, _NOT_DENSE):
            return one
        dtype = one.dtype
        known = dtype.is_floating or dtype.is_integer
        if not known or not dtype.min <= value <= dtype.max:
            return one
        return tf.where(tf.reshape(tf.constant(places), [-1, *[1] * (one.shape.rank - 1)]), tf.cast(value, dtype), one)

    return keras.tree.map_structure(put, values)


def part_of(values: Any, part: slice) -> Any:
    """Some of the examples of a structure of tensors, with their masks; None stays None."""

    def of(one: Any) -> Any:
        if one is None or one.shape.rank == 0:
            return one
        if isinstance(one, tf.SparseTensor):
            return tf.sparse.from_dense(tf.sparse.to_dense(one)[part])
        if isinstance(one, tf.RaggedTensor) and part.step == -1:
            return tf.gather(one, tf.range(one.nrows())[::-1])
        mask, taken = keras3.mask_of(one), one[part]
        if mask is not None:
            keras3.put_mask(taken, mask[part])
        return taken

    return keras.tree.map_structure(of, values)


def _loss(model: Any, compute: Compute, batch: tuple[Any, Any, Any], scale: Any) -> Tried:
    """The loss of a batch. Dropout is left out, and BatchNormalization has no statistics of this batch.

    Raises:
        ChangesModel: it would change the model, which stays as it is.
    """
    inputs, labels, weights = batch
    before = values_here(model.variables)
    with keras.StatelessScope(state_mapping=before, collect_losses=True) as scope, keras3.as_on_one_replica():
        outputs = model(inputs, **keras3.call_arguments(model, training=False))
        if scale is not None:
            outputs = times(outputs, scale)
        tried = _with_gradients(lambda given: compute(inputs, labels, given, weights), outputs)
        for variable, value in before:
            same = {"equal_nan": variable.dtype.startswith("float")}
            if not keras3.is_seed(variable) and not np.array_equal(scope.get_current_value(variable), value, **same):
                raise ChangesModel
        return tried
