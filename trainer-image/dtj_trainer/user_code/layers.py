"""What the layers of a user's model need where several replicas of a process share them. Imports TensorFlow."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import keras_compat
from dtj_trainer.compat import keras3, tf_keras


def separate_losses(model: Any) -> None:
    """Lets each replica of a process have its own list of the losses that layers add, as tf_keras does.

    The replicas are threads, which take turns in the midst of a model wherever they meet, as in a synchronised
    BatchNormalization; with one list, one clears or counts what the other has added.
    """
    if keras_compat.keras_of(model) is not keras:
        return
    for layer in (model, *keras3.sublayers(model, recursive=True)):
        keras3.separate_losses(layer, _List(), _Set())


class _List(threading.local):
    def __init__(self) -> None:
        self._items: list[Any] = []

    def append(self, item: Any) -> None:
        self._items.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        self._items.extend(items)

    def clear(self) -> None:
        self._items.clear()

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class _Set(threading.local):
    def __init__(self) -> None:
        self._items: set[Any] = set()

    def add(self, item: Any) -> None:
        self._items.add(item)

    def clear(self) -> None:
        self._items.clear()

    def __contains__(self, item: Any) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def exact_moments(layer: Any) -> None:
    """Lets a synchronised BatchNormalization compute its statistics over all replicas in two passes.

    Both Kerases compute the variance as the mean of squares less the square of the mean, which has no digit left where
    the mean is large; and Keras 3 does not synchronise what a mask selects.
    """
    if isinstance(layer, keras.Layer):

        def moments(inputs: Any, axes: Any, mask: Any) -> tuple[Any, Any]:
            small = keras.config.epsilon() if mask is not None else 0.0
            mean, variance = _moments(inputs, axes, mask, small=small)
            return tf.reshape(mean, [-1]), tf.reshape(variance, [-1])

        keras3.replace_moments(layer, moments)
        return

    def sync(x: Any, reduction_axes: Any, keep_dims: bool, mask: Any = None) -> tuple[Any, Any]:
        whole = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
        mean, variance = _moments(whole, reduction_axes, mask, small=0.0)
        if not keep_dims:
            mean, variance = (tf.squeeze(one, reduction_axes) for one in (mean, variance))
        return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)

    tf_keras.replace_moments(layer, sync)


def _moments(inputs: Any, axes: Any, mask: Any, *, small: float) -> tuple[Any, Any]:
    axes = list(axes)
    counts = tf.ones_like(inputs)
    if mask is not None:
        counts *= tf.cast(mask, inputs.dtype)[..., tf.newaxis]
    total = tf.reduce_sum(tf.where(counts > 0, inputs, 0), axes, keepdims=True)
    total, count = tf.unstack(_summed(tf.stack([total, tf.reduce_sum(counts, axes, keepdims=True)])))
    mean = tf.math.divide_no_nan(total, count + small)
    squares = tf.where(counts > 0, tf.math.squared_difference(inputs, mean), 0)
    return mean, tf.math.divide_no_nan(_summed(tf.reduce_sum(squares, axes, keepdims=True)), count + small)


def _summed(value: Any) -> Any:
    """Over all replicas."""
    context = tf.distribute.get_replica_context()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def changed_by_data(model: Any, inputs: Any) -> list[str]:
    """The variables that a forward pass in training sets to something that depends on the examples.

    Left out are those of BatchNormalization, and those that say how the replicas' values are to be aggregated.
    """
    library = keras_compat.keras_of(model)
    normalisations = [
        layer
        for layer in keras3.sublayers(model, recursive=True)
        if isinstance(layer, library.layers.BatchNormalization)
    ]
    known = {id(weight) for layer in normalisations for weight in layer.weights}
    found = [
        weight
        for weight in model.non_trainable_weights
        if id(weight) not in known and not _aggregated(weight) and not keras3.is_seed(weight)
    ]
    if not found:
        return []
    other = tf.nest.map_structure(tf.zeros_like, inputs)
    one, two = (_after(model, found, examples, library) for examples in (inputs, other))
    return [
        getattr(weight, "path", weight.name)
        for weight, a, b in zip(found, one, two, strict=True)
        if not np.array_equal(a, b)
    ]


def _aggregated(weight: Any) -> bool:
    return str(getattr(weight, "aggregation", "none")).rpartition(".")[2].lower() not in ("none", "0")


def _after(model: Any, weights: list[Any], inputs: Any, library: Any) -> list[Any]:
    """The values of these weights after a forward pass, which changes nothing."""
    training = keras3.call_arguments(model, training=True)
    if library is keras:
        mapping = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            model(inputs, **training)
            return [np.asarray(scope.get_current_value(weight)) for weight in weights]
    before = model.get_weights()
    model(inputs, **training)
    values = [weight.numpy() for weight in weights]
    model.set_weights(before)
    return values
