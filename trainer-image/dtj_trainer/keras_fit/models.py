"""What several replicas need of the model of a script's `fit`, as of a model of `--model`. Imports TensorFlow.

The model is called with examples that are made up, since the data of a script are not read before its first step. So
is a train step of the script's own, of all of them and of two parts: that shows what its losses are of the examples.
"""

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.replica_losses import noting
from dtj_trainer.training.layers import batch_normalizations, not_shared, separate_losses
from dtj_trainer.training.loss_division import Parts, agreeing, division, made_up
from dtj_trainer.training.objective import overrides

log = logging.getLogger(__name__)

_EXAMPLES = 12
_FIRST = 4
"""Examples of the first part."""
_TOLERANCE = 1e-4
"""Of what a whole step computes: a GPU may convolve a batch of another size in another way."""


def check(model: Any, data: Any, *, trains: bool, replicas: int) -> None:
    """Refuses a model whose layers several replicas cannot share; lets each replica have its own added losses.

    Args:
        data: what it is built for, as specifications or tensors.
        trains: whether it is called to train.

    Raises:
        UsageError: a layer keeps what each replica would have of its own, or adds a loss that is no mean.
    """
    separate_losses(model)
    inputs = keras.utils.unpack_x_y_sample_weight(data)[0]
    if inputs is not None and (found := _tried(lambda: not_shared(model, made_up(inputs, rows=2), trains=trains))):
        raise UsageError(f"fit with {replicas} replicas: {found}, or train on one device")


def sums_examples(model: Any, data: Any, *, replicas: int) -> bool:
    """Whether a train step of the model's own takes gradients of sums over the examples, and not of means.

    Raises:
        UsageError: it takes them of neither.
    """
    possible = _tried(lambda: divisions(model, _examples(model, data)))
    if possible == set():
        raise UsageError(
            f"fit with {replicas} replicas: {type(model).__name__}.train_step takes gradients of what is neither "
            "the mean nor the sum of what the examples give each by itself, as where it leaves out or compares "
            "examples, so nothing says how replicas divide it; compute a mean over the examples, or train on one "
            "device"
        )
    return bool(possible == {Parts.SUM})


def _examples(model: Any, data: Any) -> Any:
    """Made-up examples, of which some are mirrored and one has other labels."""
    inputs, labels, weights = _made_up(model, data)
    inputs = tf.nest.map_structure(lambda one: one * _factors(one, (0, 2, 5), -1), inputs)
    labels = tf.nest.map_structure(lambda one: one * _factors(one, (1,), 0), labels)
    batch = tuple(one for one in (inputs, labels, weights) if one is not None)
    return batch if isinstance(data, tuple | list) else inputs


def _made_up(model: Any, data: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels that fit the model's outputs, and weights."""
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(made_up(data, rows=_EXAMPLES))
    if labels is not None and type(model).call is not keras.Model.call:
        outputs = model(inputs, **keras3.call_arguments(model, training=False))
        labels = made_up(keras.utils.unpack_x_y_sample_weight(data)[1], rows=_EXAMPLES, outputs=outputs)
    return inputs, labels, weights


def division_of_loss(model: Any, data: Any, *, replicas: int) -> Parts | None:
    """How a `compute_loss` of the model's own divides over the replicas; None if it has none.

    Raises:
        UsageError: it is neither the mean over the examples nor their sum.
    """
    if not overrides(model, "compute_loss"):
        return None
    training = keras3.compute_loss_arguments(model, training=True)

    def compute(x: Any, y: Any, y_pred: Any, weights: Any) -> Any:
        return type(model).compute_loss(model, x, y, y_pred, weights, **training)

    known: Parts | None = _tried(lambda: division(model, compute, _made_up(model, data)))
    if known in (None, Parts.NONE):
        raise UsageError(
            f"fit with {replicas} replicas: {type(model).__name__}.compute_loss is not known to be the mean over "
            "the examples, nor their sum, so nothing says how replicas divide it; let it be one of them, or train "
            "on one device"
        )
    return known


def _factors(values: Any, rows: tuple[int, ...], factor: int) -> Any:
    """Of examples: this factor for these, 1 for the others and where values have no such factor."""
    if not values.dtype.is_floating and (factor < 0 or not values.dtype.is_integer):
        return tf.ones([], values.dtype)
    factors = [factor if row in rows else 1 for row in range(_EXAMPLES)]
    return tf.reshape(tf.constant(factors, values.dtype), [-1, *[1] * (values.shape.rank - 1)])


def _tried(call: Callable[[], Any]) -> Any:
    """What a call gives outside of a strategy's scope, which is one of its thread; None if made-up examples fail."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - a model need not take examples that are made up
            log.debug(f"the model does not take examples that are made up: {error}")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0] if found else None


def divisions(model: Any, batch: Any) -> set[Parts]:
    """What all losses may be, of which a train step takes gradients: means over the examples, sums, or none of these.

    Each example draws the same numbers. What draws others is not compared. BatchNormalization takes the statistics
    that it has.
    """
    compared = True

    def not_compared() -> None:
        nonlocal compared
        compared = False

    @tf.function(autograph=False)
    def traced(batch: Any, share: Any) -> Any:
        before = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
        with (
            keras.StatelessScope(state_mapping=before, collect_losses=True),
            _drawing_alike(not_compared),
            noting(share) as losses,
        ):
            model.train_step(batch)
        return losses

    known = [layer for layer in batch_normalizations(model) if layer.trainable]
    for layer in known:
        layer.trainable = False
    try:
        specification = tf.nest.map_structure(lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype), batch)
        losses = traced.get_concrete_function(specification, tf.TensorSpec([], tf.float32))
        rows = int(tf.nest.flatten(batch)[0].shape[0])
        parts = ((0, rows), (0, rows), (0, _FIRST), (_FIRST, rows))
        whole, again, first, rest = (
            losses(
                tf.nest.map_structure(lambda one, start=start, stop=stop: one[start:stop], batch),
                tf.constant((stop - start) / rows),
            )
            for start, stop in parts
        )
    finally:
        for layer in known:
            layer.trainable = True
    possible = {Parts.MEAN, Parts.SUM}
    for one, same, *each in zip(whole, again, first, rest, strict=True) if compared else ():
        if np.allclose(one, same, rtol=_TOLERANCE, equal_nan=True):
            possible &= agreeing(one, *each, share=_FIRST / rows, tolerance=_TOLERANCE)
    return possible


_DRAWS_OF_EACH = ("stateless_normal", "stateless_uniform", "stateless_truncated_normal")
_OTHER_DRAWS = ("stateless_categorical", "stateless_gamma", "stateless_binomial")


@contextmanager
def _drawing_alike(otherwise: Callable[[], object]) -> Iterator[None]:
    """Lets Keras draw the same numbers for each example of a batch, whatever the number of examples.

    Args:
        otherwise: called where it draws others.
    """

    def of_each(draw: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any) -> Any:
        shape = tf.convert_to_tensor(shape, tf.int32)
        if not shape.shape[0]:
            return draw(shape, *args, **kwargs)
        return tf.broadcast_to(draw(tf.concat([[1], shape[1:]], 0), *args, **kwargs), shape)

    def dropout(drop: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
        return drop(x, *args, **{**kwargs, "noise_shape": tf.concat([[1], tf.shape(x)[1:]], 0)})

    def other(draw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        otherwise()
        return draw(*args, **kwargs)

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [(tf.nn.experimental, "stateless_dropout", dropout)]
    replaced += [(tf.random, name, of_each) for name in _DRAWS_OF_EACH]
    replaced += [(tf.random, name, other) for name in _OTHER_DRAWS]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for (owner, name, wrap), (_, _, original) in zip(replaced, before, strict=True):
        setattr(owner, name, functools.partial(wrap, original))
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
