"""The gradients of one replica's step: those of the whole batch, which the step may change as on one device.

`override` puts these functions in the place of those of TensorFlow and Keras. Imports TensorFlow.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import incompatible, keras3
from dtj_trainer.compat.optimizers import by_rows, count_of, reads_count, reduced, weights_of
from dtj_trainer.compat.tensorflow import components, parts_of_replica, updating_alone
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.replica_losses import counted_here, here, part_of_whole, several
from dtj_trainer.training.layers import replicas_meet
from dtj_trainer.training.loss_division import STEPS, Parts, Tried
from dtj_trainer.training.weight_update import are_of_whole_batch, scales

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_WHOLE = "_dtj_whole"
"""Attribute of a gradient that is the same on all replicas."""


_NUMBERS = 4096
"""Of the gradient of a weight that are compared."""


@tf.autograph.experimental.do_not_convert
def gradient(
    original: Any, tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Gradients of weights in a step: those of the whole batch, which the step may change as on one device."""
    weights = all(isinstance(one, tf.Variable | keras.Variable) for one in tree.flatten(sources))
    if here.share is None or here.differentiates or not weights:
        return original(tape, target, sources, output_gradients, *args, **kwargs)
    targets = tree.flatten(target)
    if here.noted is not None:
        if here.judged is None:
            # As the look reads them: on the first device of this process.
            read = [_read(one) for one in tree.flatten(sources)]
            take = functools.partial(original, tape, target, read, output_gradients, *args, **kwargs)
            here.noted.targets += _noted(targets, take)
        return tree.map_structure(lambda one: tf.zeros(one.shape, one.dtype), sources)
    given = [None] * len(targets) if output_gradients is None else tree.flatten(output_gradients)
    given = [tf.ones_like(to) if one is None else one for one, to in zip(given, targets, strict=True)]
    given = [part_of_whole(one) if _is_mean(to) else one for one, to in zip(given, targets, strict=True)]
    given = [counted_here(one) for one in given]
    _check_meets("takes gradients of weights")
    with here.having(differentiates=True):
        return _reduced("SUM", original(tape, targets, sources, given, *args, **kwargs))


def _check_meets(does: str) -> None:
    """Refuses what replicas do together where they do not meet.

    Args:
        does: the step.

    Raises:
        UsageError: this is not the graph of the step.
    """
    if not replicas_meet():
        raise UsageError(
            f"fit with {tf.distribute.get_strategy().num_replicas_in_sync} replicas: {type(here.model).__name__}"
            f".train_step {does} in a loop or a condition of TensorFlow, or in a function that XLA compiles, where "
            "replicas cannot exchange gradients; do it outside of that, or train on one device"
        )


def _read(weight: Any) -> Any:
    return components(keras3.storage_of(weight) if isinstance(weight, keras.Variable) else weight)[0]


def _noted(targets: list[Any], gradients: Callable[[], Any]) -> list[Tried]:
    """Losses of which a step that is only looked at takes gradients, with these if there is one loss."""
    values = [np.asarray(tf.cast(tf.reduce_sum(one), tf.float64)) for one in targets]
    steps = [STEPS.get(one.dtype, 0.0) for one in targets]
    if len(targets) > 1:
        return [Tried(value, step=step) for value, step in zip(values, steps, strict=True)]
    with here.having(differentiates=True):
        found = [tf.reshape(tf.convert_to_tensor(one), [-1]) for one in tree.flatten(gradients()) if one is not None]
    # An odd step meets all channels.
    some = [np.asarray(one[:: -(-one.shape[0] // _NUMBERS) | 1], np.float64) for one in found if one.shape[0]]
    return [Tried(values[0], of_weights=np.concatenate([np.zeros(0), *some]), step=steps[0])]


def _is_mean(target: Any) -> bool:
    """Whether a loss is a mean over the examples, of which the step takes the gradient next; or its elements are."""
    place, here.taken = here.taken, here.taken + 1
    # Keras' own step takes one of a number, or of a value for each example: their sum.
    return here.targets[place] is Parts.MEAN if place < len(here.targets) else target.shape.rank == 0


def _reduced(how: str, gradients: Any) -> Any:
    """Over all replicas, and noted as such."""
    found = reduced(how, tf.nest.flatten(gradients))
    for one in _tensors(found):
        setattr(one, _WHOLE, True)
    return tf.nest.pack_sequence_as(gradients, found)


def is_whole(tensor: Any) -> bool:
    """Whether a tensor is known to be the same on all replicas."""
    return hasattr(tensor, _WHOLE)


def _tensors(gradients: Any) -> list[Any]:
    return [one for one in tf.nest.flatten(gradients, expand_composites=True) if one is not None]


def apply(original: Any, optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Updates the weights by gradients that are the same on all replicas, unless the step is only looked at.

    Raises:
        UsageError: each replica would have gradients of its own.
    """
    grads = [tf.convert_to_tensor(one) if isinstance(one, tf.Variable | keras.Variable) else one for one in grads]
    if here.noted is not None:
        weights = weights_of(optimizer) if trainable_variables is None else trainable_variables
        here.noted.applied.append((optimizer, grads, list(weights)))
        return None
    changed = [one for one in _tensors(grads) if not is_whole(one)] if here.share is not None else []
    if changed and tf.executing_eagerly():
        grads = _reduced("MEAN", grads)
    elif parts := [part for one in changed for part in parts_of_replica(one, known=is_whole)]:
        raise UsageError(
            f"fit with {tf.distribute.get_strategy().num_replicas_in_sync} replicas: {type(here.model).__name__}"
            f".train_step gives the optimizer {type(optimizer).__name__} what is not made of tape.gradient, weights "
            f"and constants alone ({parts[0].op.type}), and each replica would have its own; leave out what depends on "
            "examples or chance, or train on one device"
        )
    if here.share is None or tf.executing_eagerly():
        return original(optimizer, grads, trainable_variables)
    if here.branch is tf.compat.v1.get_default_graph() and not _branches(optimizer):
        with _updating_here(optimizer, trainable_variables):
            return original(optimizer, grads, trainable_variables)
    _check_meets(f"calls the optimizer {type(optimizer).__name__}")
    # One that accumulates gradients counts behind an update that reads the count, and so not where there is no batch.
    waits = optimizer.gradient_accumulation_steps and reads_count(optimizer)
    if not waits:
        _updated.setdefault(here.trained, WeakSet()).add(optimizer)
    with here.having(counts=(count_of(optimizer), _tensors(grads))):
        return original(optimizer, grads, trainable_variables)


def _branches(optimizer: Any) -> bool:
    """Whether an update of an optimizer is more than one of each weight by its gradient."""
    return scales(optimizer) or bool(optimizer.gradient_accumulation_steps or optimizer.use_ema)


@contextmanager
def _updating_here(optimizer: Any, weights: Any) -> Iterator[None]:
    """In a branch that all replicas take: an optimizer updates the copies of weights that are this replica's."""
    context = tf.distribute.get_replica_context()
    weights = weights_of(optimizer) if weights is None else weights
    place = int(tf.get_static_value(context.replica_id_in_sync_group))
    with keras3.stored_in_part([*optimizer.variables, *weights], place), updating_alone(context.strategy):
        yield


_updated: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
"""By model, the optimizers that its step updates whatever it computes."""


def by_xla(model: Any) -> bool:
    """Whether Keras compiles the step of a model by XLA on one device, so that it is computed whole or not at all."""
    return model.jit_compile or any(one.device_type != "CPU" for one in tf.config.list_logical_devices())


def count_end(model: Any) -> None:
    """Counts an update where data end that do not say their length, as the step of Keras does on one device.

    A step of Keras that is a graph gets its batch itself, and raises the counts of its optimizers before it finds that
    there is none: rates that follow the count go by it. XLA does not.
    In a step of several replicas, TensorFlow would raise them at once or later, each replica's for itself: there, they
    wait for the gradients (`OfReplica.counts`).
    """
    if by_xla(model):
        return
    for optimizer in _updated.get(model, ()):
        if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            keras3.storage_of(count_of(optimizer)).assign_add(1)


def _all_reduce_sum_gradients(original: Any, optimizer: Any, pairs: Any) -> Any:
    """In `fit`, the gradients are those of the whole batch already."""
    if are_of_whole_batch():
        return pairs
    gradients, weights = zip(*pairs, strict=True)

    def reduce(given: list[Any]) -> list[Any]:
        return [one for one, _ in original(optimizer, list(zip(given, weights, strict=True)))]

    return list(zip(by_rows(reduce, gradients), weights, strict=True))


def check_finite(original: Any, optimizer: Any, gradients: list[Any]) -> Any:
    """Whether the gradients of all replicas are finite: each alone could decide otherwise, and wait for the others."""
    finite = original(optimizer, gradients)
    context = tf.distribute.get_replica_context()
    if context is None or not several(context.strategy):
        return finite
    return tf.equal(context.all_reduce("SUM", 1.0 - tf.cast(finite, tf.float32)), 0.0)
