"""Metrics that a step, a `compute_loss`, a `compute_metrics` or a layer of the user's own updates and reads.

A replica updates a metric by its own examples, and what metrics keep is summed over the replicas when it is read. Where
the first batch shows that no sum is right, as of the largest value, the metric is updated by what all replicas give it.
Imports TensorFlow and Keras.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import incompatible
from dtj_trainer.compat.keras3 import updated_by_keras
from dtj_trainer.distribution.gathering import Whole, bytes_of
from dtj_trainer.keras_fit.judged import gained
from dtj_trainer.keras_fit.replica_losses import alone, counted_here, here, measuring, update_by_all
from dtj_trainer.training.loss_division import Parts

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_ROWS = (Parts.EACH, Parts.VALUES)


@dataclass(frozen=True)
class Update:
    """How replicas update a metric.

    Attributes:
        adds_up: whether each may do so by what it computes.
        given: how each tensor that it is given comes of those of parts of the batch.
    """

    adds_up: bool = False
    given: Sequence[Parts] = ()


@dataclass(frozen=True)
class Updated:
    """How a step that is looked at has updated a metric.

    Attributes:
        gained: what its variables are after this update alone.
        given: the tensors that it was given, as arrays; None for what is none.
        sizes: of these in bytes.
    """

    metric: Any
    gained: Sequence[Any]
    given: Sequence[Any]
    sizes: Sequence[int]


def own_metrics(model: Any) -> list[Any]:
    """Metrics of a model and its layers that Keras does not update by itself."""
    return [one for one in model.metrics if not any(one is other for other in updated_by_keras(model))]


@contextmanager
def watching(owners: Sequence[Any], result: Callable[..., Any]) -> Iterator[None]:
    """Around a step: metrics are updated by `update_state` of this module.

    Args:
        owners: the metrics, and anything else.
        result: (metric, its own `result`, arguments) -> its result.
    """
    placed = {"update_state": update_state, "result": result}
    metrics = [one for one in owners if isinstance(one, keras.Metric)]
    ours = [(metric, name) for metric in metrics for name in placed if name not in vars(metric)]
    # Not by setattr, which would look for variables in it.
    for metric, name in ours:
        vars(metric)[name] = functools.partial(placed[name], metric, getattr(metric, name))
    try:
        yield
    finally:
        for metric, name in ours:
            del vars(metric)[name]


def update_state(metric: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Updates a metric in a replica's step, by what all replicas give it if the first batch has shown the need."""
    share, of_all = (here.share, False) if here.share is not None else here.beside
    if share is None or here.updating or here.model is None or any(metric is one for one in here.by_keras):
        return original(*args, **kwargs)
    with measuring(share):
        tensors = [one for one in tree.flatten((args, kwargs)) if _is_tensor(one)]
        if of_all:
            return update_by_all(metric, functools.partial(original, *args, **kwargs))
        if _takes_number(metric, tensors):  # which `step_values.update_mean` sees
            return original(*args, **kwargs)
        if here.noted is not None:
            here.noted.updates.append(_updated(metric, original, args, kwargs))
            return original(*args, **kwargs)
        place, here.updated = here.updated, here.updated + 1
        found = here.updates[place] if place < len(here.updates) else Update()
        if found.adds_up:
            return original(*args, **kwargs)
        parts = iter(found.given)

        def whole(value: Any) -> Any:
            return _whole(value, next(parts, None)) if _is_tensor(value) else value

        args, kwargs = tree.map_structure(whole, (args, kwargs))
        return update_by_all(metric, functools.partial(original, *args, **kwargs))


def _is_tensor(value: Any) -> bool:
    return tf.is_tensor(value) or isinstance(value, keras.Variable)


def _takes_number(metric: Any, tensors: Sequence[Any]) -> bool:
    number = len(tensors) == 1 and not tensors[0].shape.rank
    return number and type(metric).update_state is keras.metrics.Mean.update_state


def _updated(metric: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Updated:
    tensors = [one for one in tree.flatten((args, kwargs)) if _is_tensor(one)]
    with alone():
        found = gained(metric, functools.partial(original, *args, **kwargs))
    return Updated(metric, found, [as_array(one) for one in tensors], [bytes_of(one) for one in tensors])


def as_array(value: Any) -> Any:
    """The numbers of a tensor that is not symbolic; None for what is no array of numbers."""
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return None
    tensor = tf.convert_to_tensor(value)
    return None if tensor.dtype == tf.string else np.asarray(tf.cast(tensor, tf.float64))


def _whole(value: Any, parts: Parts | None) -> Any:
    """Of all replicas what each gives a metric. None: not known."""
    if value.shape.rank != 0 and (parts is None or parts in _ROWS):
        return Whole(here.present).gathered(value)
    value = tf.convert_to_tensor(value)
    value = value if value.dtype.is_floating else tf.cast(value, tf.float32)
    share = tf.cast(here.share, value.dtype)
    # The mean of no examples is NaN.
    part = counted_here(value) if parts is Parts.SUM else tf.where(share > 0, value * share, tf.zeros_like(value))
    return tf.distribute.get_replica_context().all_reduce("SUM", part)


def result_of_all(metric: Any, result: Callable[[], Any]) -> Any:
    """The result of a metric in a replica's step: of what all replicas have given it so far."""
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync

    def part(variable: Any) -> Any:
        # A copy is on the replica's device, which TensorFlow asks for.
        value = tf.identity(variable.value)
        counts_once = any(metric is one for one in here.once_a_batch)
        if here.present is not None and not counts_once and id(variable) in here.unmeasured:
            value = tf.where(here.present > 0, value, here.unmeasured[id(variable)])
        return value / replicas if variable.aggregation == "mean" else value

    variables = metric.variables
    if not variables:
        return result()
    kept = tf.distribute.get_replica_context().all_reduce("SUM", [part(one) for one in variables])
    with measuring(here.share), keras.StatelessScope(state_mapping=list(zip(variables, kept, strict=True))):
        return result()
