"""Models of the table in `parity.py` whose loss is one number for a batch, or depends on all of its examples."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from parity_data import CLASSES, FEATURES, dense


def _compiled(loss: Any) -> Any:
    model = dense(keras.optimizers.SGD(0.1))
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    return model


def _crossentropy(labels: Any, outputs: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)


def one_number() -> Any:
    return _compiled(lambda labels, outputs: tf.reduce_mean(_crossentropy(labels, outputs)))


def one_number_uneven() -> Any:
    return one_number()


def one_sum() -> Any:
    return _compiled(lambda labels, outputs: 0.05 * tf.reduce_sum(_crossentropy(labels, outputs)))


def _overlapping(loss: Any) -> Any:
    """Of probabilities: a Dice loss of other outputs divides by sums that may be near zero."""
    outputs = keras.layers.Dense(CLASSES, activation="softmax")
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(8, activation="tanh"), outputs])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    return model


def dice_of_the_batch() -> Any:
    return _overlapping(keras.losses.Dice())


def dice_of_each() -> Any:
    return _overlapping(keras.losses.Dice(axis=1))


def circle() -> Any:
    return _compiled(keras.losses.Circle(gamma=1.0))
