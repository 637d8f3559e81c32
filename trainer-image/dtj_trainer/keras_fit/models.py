"""What several replicas need of the model of a script's `fit`, as of a model of `--model`. Imports TensorFlow.

The model is looked at with the first examples that its data give. So is a train step of the script's own, of all of
them and of two parts: that shows what its losses are of the examples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import values_here
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.judged import Judged
from dtj_trainer.keras_fit.replica_losses import looking, noting, own_step
from dtj_trainer.training import layers_by_parts
from dtj_trainer.training.drawing import drawing_alike
from dtj_trainer.training.layers import not_shared, separate_losses
from dtj_trainer.training.loss_division import ChangesModel, Parts, agreeing, division, part_of, rows_of

_LEAST, _MOST = 6, 12
"""Examples that a step is tried on."""
_TOLERANCE = 1e-4
"""Of what a whole step computes: a GPU may convolve a batch of another size in another way."""


def check(model: Any, examples: Any, *, trains: bool, replicas: int) -> Sequence[Parts]:
    """How the losses divide that the layers of a model add; lets each replica have its own.

    Args:
        examples: real ones, as a step is given them.
        trains: whether it is called to train.

    Raises:
        UsageError: several replicas cannot share a layer.
    """
    separate_losses(model)
    inputs = keras.utils.unpack_x_y_sample_weight(examples)[0]
    if inputs is None or type(model).call is keras.Model.call:
        return ()
    seen = layers_by_parts.look(model, inputs, training=trains)
    if problem := not_shared(model, inputs, seen, trains=trains):
        raise UsageError(f"fit with {replicas} replicas: {problem}, or train on one device")
    return [loss.parts for loss in seen.added]


def targets_of(model: Any, examples: Any, *, replicas: int) -> list[Parts]:
    """How each loss divides of which a train step of the model's own takes gradients: MEAN or SUM.

    Raises:
        UsageError: one is neither.
    """
    possible = divisions(model, _tried(examples))
    if set() in possible:
        raise UsageError(
            f"fit with {replicas} replicas: {type(model).__name__}.train_step takes gradients of what is neither "
            "the mean nor the sum of what the examples give each by itself, as where it leaves out or compares "
            "examples, so nothing says how replicas divide it; compute a mean over the examples, let "
            "self.compute_loss compute it, or train on one device"
        )
    return [Parts.MEAN if Parts.MEAN in one else Parts.SUM for one in possible]


def _tried(examples: Any) -> list[Any]:
    """Real examples, and the same of which some are mirrored and one has other labels: enough to be divided."""
    rows = rows_of(examples)
    take = tf.range(max(_LEAST, min(rows, _MOST))) % rows
    examples = keras.tree.map_structure(lambda one: None if one is None else tf.gather(one, take), examples)
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(examples)
    inputs = keras.tree.map_structure(lambda one: one * _factors(one, (0, 2, 5), -1), inputs)
    labels = keras.tree.map_structure(lambda one: one * _factors(one, (1,), 0), labels)
    batch = tuple(one for one in (inputs, labels, weights) if one is not None)
    return [examples, batch if isinstance(examples, tuple | list) else inputs]


def division_of_loss(model: Any, examples: Any) -> Parts | None:
    """How a `compute_loss` of the model's own divides over the replicas; None if it has none.

    Raises:
        UsageError: it changes the model.
    """
    if not keras3.overrides(model, "compute_loss"):
        return None
    training = keras3.compute_loss_arguments(model, training=True)

    def compute(x: Any, y: Any, y_pred: Any, weights: Any) -> Any:
        return type(model).compute_loss(model, x, y, y_pred, weights, **training)

    try:
        return division(model, compute, keras.utils.unpack_x_y_sample_weight(examples))
    except ChangesModel:
        raise UsageError(
            f"{type(model).__name__}.compute_loss sets variables of the model, and each replica would have its own; "
            "set them in a layer that is given an aggregation, or train on one device"
        ) from None


def _factors(values: Any, rows: tuple[int, ...], factor: int) -> Any:
    """Of examples: this factor for these, 1 for the others and where values have no such factor."""
    if isinstance(values, tf.RaggedTensor | tf.SparseTensor):
        return tf.ones([], values.dtype)
    if not values.dtype.is_floating and (factor < 0 or not values.dtype.is_integer):
        return tf.ones([], values.dtype)
    factors = [factor if row in rows else 1 for row in range(values.shape[0])]
    return tf.reshape(tf.constant(factors, values.dtype), [-1, *[1] * (values.shape.rank - 1)])


def look(model: Any, step: Callable[[Any], Any], examples: Any, judged: Judged, *, own: bool = False) -> dict[Any, Any]:
    """Judges the losses and metrics of a train step or a test step, which is called with real examples.

    It changes nothing: no gradient is taken, and no variable is set.

    Returns:
        What it returns, by its place.
    """
    before = values_here(_variables(model))
    with (
        keras.StatelessScope(state_mapping=before, collect_losses=True),
        drawing_alike(lambda: None),
        looking(judged),
        own_step(model if own else None, divides=False),
    ):
        return dict(keras.tree.flatten_with_path(step(examples)))


def parts_of_returned(model: Any, step: Callable[[Any], Any], examples: Any) -> tuple[dict[Any, Parts], list[Parts]]:
    """How the numbers of a step of the user's own come of those of parts of a batch.

    Returns:
        Of what it returns, by its place, and of what it gives a Mean, in its order.
    """
    rows = rows_of(examples)
    if rows == 1:
        return {}, []
    first = max(1, rows // 3)
    judged = Judged(), Judged(), Judged()
    slices = slice(0, rows), slice(0, first), slice(first, rows)
    with layers_by_parts.undisturbed(model):
        values, *each = (
            look(model, step, part_of(examples, part), one, own=True) for part, one in zip(slices, judged, strict=True)
        )
    returned = {
        place: _of_numbers(value, *(part[place] for part in each), share=first / rows)
        for place, value in values.items()
    }
    return returned, [_of_numbers(*one, share=first / rows) for one in zip(*(one.means for one in judged), strict=True)]


def _of_numbers(whole: Any, first: Any, rest: Any, *, share: float) -> Parts:
    """How a number, or several, that a step returns comes of those of parts of a batch."""
    whole, first, rest = (np.asarray(one) for one in (whole, first, rest))
    possible = agreeing(whole, first, rest, share=share, tolerance=_TOLERANCE)
    if whole.ndim and whole.shape == first.shape == rest.shape:  # of each class, say
        each = zip(whole.ravel(), first.ravel(), rest.ravel(), strict=True)
        possible |= set.intersection(*(agreeing(*one, share=share, tolerance=_TOLERANCE) for one in each), set(Parts))
    return next((one for one in Parts if one in possible), Parts.NONE)


def _variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    of_metrics = [one for metric in model.metrics for one in metric.variables]
    return [*model.variables, *of_metrics, *(optimizer.variables if optimizer is not None else ())]


def divisions(model: Any, batches: Sequence[Any]) -> list[set[Parts]]:
    """What each loss may be of which a train step takes gradients: a mean over the examples, a sum, or none of these.

    Each example draws the same numbers. What draws others is not compared. BatchNormalization takes the statistics
    that it has.
    """
    compared = True

    def not_compared() -> None:
        nonlocal compared
        compared = False

    @tf.function(autograph=False)
    def traced(batch: Any, share: Any) -> Any:
        before = values_here(model.variables)
        with (
            keras.StatelessScope(state_mapping=before, collect_losses=True),
            drawing_alike(not_compared),
            noting(share) as losses,
        ):
            model.train_step(batch)
        return losses

    possible: list[set[Parts]] = []
    with layers_by_parts.undisturbed(model):
        specification = tf.nest.map_structure(_of_any_number, batches[0])
        losses = traced.get_concrete_function(specification, tf.TensorSpec([], tf.float32))
        for batch in batches:
            rows = rows_of(batch)
            first = rows // 3
            whole, again, *each = (
                losses(part_of(batch, part), tf.constant((part.stop - part.start) / rows))
                for part in (slice(0, rows), slice(0, rows), slice(0, first), slice(first, rows))
            )
            possible = possible or [{Parts.MEAN, Parts.SUM} for _ in whole]
            for of, one, same, *parts in zip(possible, whole, again, *each, strict=True) if compared else ():
                if np.allclose(one, same, rtol=_TOLERANCE, equal_nan=True):
                    of &= agreeing(one, *parts, share=first / rows, tolerance=_TOLERANCE)
    return possible


def _of_any_number(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return tf.type_spec_from_value(value)
    return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
