"""Models of the table in `parity_cases.py` with metrics, and with inputs that have no one shape."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from parity_data import CLASSES, FEATURES, dense, points
from parity_losses import VOCABULARY, tokens


def _classes() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Positive(keras.metrics.Metric):
    """A user's own metric: how many answers are right of those whose first output is positive."""

    def __init__(self, name: str = "positive") -> None:
        super().__init__(name=name)
        self.right = self.add_variable(shape=(), initializer="zeros", name="right")
        self.all = self.add_variable(shape=(), initializer="zeros", name="all")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        chosen = y_pred[:, 0] > 0
        right = keras.ops.equal(keras.ops.argmax(y_pred, axis=-1), keras.ops.cast(y_true, "int64"))
        self.right.assign_add(keras.ops.sum(keras.ops.cast(keras.ops.logical_and(right, chosen), "float32")))
        self.all.assign_add(keras.ops.sum(keras.ops.cast(chosen, "float32")))

    def result(self) -> Any:
        return self.right / self.all


def metrics() -> Any:
    model = dense(keras.optimizers.SGD(0.1))
    model.compile(
        optimizer=keras.optimizers.SGD(0.1),
        loss=_classes(),
        metrics=[
            "accuracy",
            keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="iou"),
            Positive(),
        ],
        weighted_metrics=[keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")],
    )
    return model


def yes_or_no() -> dict[str, Any]:
    """Vectors, and whether they are of the first class."""
    return {name: part.map(lambda x, label: (x, tf.reshape(label == 0, [1]))) for name, part in points().items()}


def area_under_curve() -> Any:
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1, "sigmoid")]
    )
    metrics = [keras.metrics.AUC(name="area"), keras.metrics.Precision(name="precision")]
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="binary_crossentropy", metrics=metrics)
    return model


def ragged_tokens() -> dict[str, Any]:
    """Sequences of different lengths without padding, and a class for each."""

    def rows(part: Any) -> Any:
        ids, labels = next(iter(part.batch(part.cardinality())))
        return tf.data.Dataset.from_tensor_slices((tf.ragged.boolean_mask(ids, ids > 0), labels[:, 0]))

    return {name: rows(part) for name, part in tokens().items()}


def ragged() -> Any:
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", ragged=True),
            keras.layers.Embedding(VOCABULARY, 4),
            keras.layers.Lambda(lambda rows: tf.reduce_mean(rows, axis=1)),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def ragged_uneven() -> Any:
    return ragged()


def tf_keras_ragged() -> Any:
    import tf_keras

    init = tf_keras.initializers
    model = tf_keras.Sequential(
        [
            tf_keras.Input((None,), dtype="int32", ragged=True),
            tf_keras.layers.Embedding(VOCABULARY, 4, init.RandomUniform(seed=1)),
            tf_keras.layers.LSTM(
                4, kernel_initializer=init.GlorotUniform(seed=2), recurrent_initializer=init.Orthogonal(seed=3)
            ),
            tf_keras.layers.Dense(CLASSES, kernel_initializer=init.GlorotUniform(seed=4)),
        ]
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf_keras.optimizers.SGD(0.1), loss=loss)
    return model
