"""BatchNormalization of a user's model whose statistics are those of the global batch. Imports TensorFlow."""

from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3


def synchronize_batch_normalization(model: Any) -> int:
    """Lets every BatchNormalization of a model take its statistics over all replicas; returns how many there are."""
    found = [
        layer for layer in keras3.sublayers(model, recursive=True) if isinstance(layer, keras.layers.BatchNormalization)
    ]
    for layer in found:
        layer.synchronized = True
        keras3.replace_moments(layer, _exact_moments)
    return len(found)


def _exact_moments(inputs: Any, axes: Any, mask: Any) -> tuple[Any, Any]:
    """Mean and variance over all replicas, in two passes.

    Keras computes the variance as the mean of squares less the square of the mean, which has no digit left where the
    mean is large; and it does not synchronize what a mask selects.
    """
    small = keras.config.epsilon() if mask is not None else 0.0
    mean, variance = _moments(inputs, axes, mask, small=small)
    return tf.reshape(mean, [-1]), tf.reshape(variance, [-1])


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
