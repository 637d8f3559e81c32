"""BatchNormalization of a user's model whose statistics are those of the global batch. Imports TensorFlow."""

from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import keras_compat
from dtj_trainer.compat import keras3, tf_keras


def synchronize_batch_normalization(model: Any) -> int:
    """Lets every BatchNormalization of a model take its statistics over all replicas; returns how many there are."""
    library = keras_compat.keras_of(model)
    found = [
        layer
        for layer in keras3.sublayers(model, recursive=True)
        if isinstance(layer, library.layers.BatchNormalization)
    ]
    for layer in found:
        layer.synchronized = True
        _use_exact_moments(layer)
        if library is not keras:
            # The fused kernel of tf_keras knows one replica only.
            layer.fused = False
    return len(found)


def _use_exact_moments(layer: Any) -> None:
    """Lets a synchronized BatchNormalization compute its statistics over all replicas in two passes.

    Both Kerases compute the variance as the mean of squares less the square of the mean, which has no digit left where
    the mean is large; and Keras 3 does not synchronize what a mask selects.
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
