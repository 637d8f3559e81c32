"""Models of `parity_cases.py` whose layers, metrics or train steps do what several replicas cannot divide."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from parity_data import CLASSES, FEATURES, dense


def _with(layer: Any, **compiled: Any) -> Any:
    """A small model with this layer in its midst."""
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, activation="tanh"),
            layer,
            keras.layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, **compiled)
    return model


class Adds(keras.layers.Layer):
    """A penalty of what passes: its mean or sum over the examples."""

    def __init__(self, reduce: Any) -> None:
        super().__init__()
        self._reduce = reduce

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * self._reduce(inputs**2))
        return inputs


def activities() -> Any:
    return _with(Adds(keras.ops.mean))


def activities_uneven() -> Any:
    return activities()


def activities_summed() -> Any:
    return _with(Adds(keras.ops.sum))


class Levels(keras.layers.Layer):
    """Keeps a mean in a variable that Keras does not know."""

    def __init__(self) -> None:
        super().__init__(name="levels")
        self.level = tf.Variable(tf.zeros([8]), trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.level.assign(0.9 * self.level + 0.1 * tf.reduce_mean(inputs, 0))
        return inputs - self.level


def bare_variable() -> Any:
    return _with(Levels())


class Largest(keras.metrics.Metric):
    """The largest output, which is no sum."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.found = self.add_weight(name="found", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.found.assign(keras.ops.maximum(self.found, keras.ops.max(keras.ops.abs(y_pred))))

    def result(self) -> Any:
        return self.found


def metric_of_maxima() -> Any:
    return _with(keras.layers.Dense(8), metrics=[Largest()])


def _dense_as(kind: Any) -> Any:
    before = dense(keras.optimizers.SGD(0.1))
    model = kind(before.inputs, before.outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.1), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


class Watches(keras.layers.Layer):
    """Updates a metric whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.size = keras.metrics.Mean(name="size")

    def call(self, inputs: Any) -> Any:
        self.size.update_state(keras.ops.mean(inputs**2))
        return inputs


def watched_layer() -> Any:
    return _with(Watches())


class Rebuilds(keras.Model):
    """Has no loss but the one that it adds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(4, activation="tanh")
        self.outer = keras.layers.Dense(FEATURES)

    def call(self, inputs: Any) -> Any:
        outputs = self.outer(self.inner(inputs))
        self.add_loss(keras.ops.mean((outputs - inputs) ** 2))
        return outputs


def added_loss_alone() -> Any:
    model = Rebuilds()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


def tf_keras_branches() -> Any:
    import tf_keras

    class Gate(tf_keras.layers.Layer):
        """Decides by what it sees."""

        def call(self, inputs: Any) -> Any:
            if tf.reduce_sum(inputs) > 0:
                inputs = 2 * inputs
            return inputs

    model = tf_keras.Sequential([tf_keras.Input((FEATURES,)), Gate(), tf_keras.layers.Dense(CLASSES)])
    model.compile(tf_keras.optimizers.SGD(0.1), tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
