"""How a loss divides over replicas: what is nearly a mean is none, and what is only rounded is one."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.training.loss_division import EXAMPLES, Parts, agreeing, division, loss_of_parts

FEATURES = 512
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Parts]] = {
    "each": (lambda y, y_pred: tf.reduce_mean(tf.square(y - y_pred), axis=-1), Parts.EACH),
    "mean": (lambda y, y_pred: tf.reduce_mean(tf.square(y - y_pred)), Parts.MEAN),
    "sum": (lambda y, y_pred: tf.reduce_sum(tf.square(y - y_pred)), Parts.SUM),
    "root": (lambda y, y_pred: tf.sqrt(tf.reduce_mean(tf.square(y - y_pred))), Parts.NONE),
    "nearly a mean": (
        lambda y, y_pred: tf.reduce_mean(tf.square(y - y_pred)) * (1 + 1e-3 * tf.reduce_mean(y_pred)),
        Parts.NONE,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("loss", "parts"), FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_loss_of_numbers_is_known_by_its_parts(loss: Callable[[Any, Any], Any], parts: Parts, dtype: str) -> None:
    def of_float32(labels: Any, outputs: Any) -> Any:
        return loss(labels, tf.cast(outputs, tf.float32))

    labels, outputs = tf.TensorSpec([None, 64], tf.float32), tf.TensorSpec([None, 64], dtype)
    assert loss_of_parts(of_float32, labels, outputs) is parts


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_loss_of_a_model_is_known_by_parts_of_a_batch(kind: str, policy: str) -> None:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, "relu", dtype=policy), keras.layers.Dense(3, dtype=policy)]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    random = np.random.default_rng(1)
    inputs, labels = (tf.constant(random.normal(size=(EXAMPLES, size)), tf.float32) for size in (FEATURES, 3))
    loss, parts = FUNCTIONS[kind]

    def compute(_inputs: Any, labels: Any, outputs: Any, _weights: Any) -> Any:
        return tf.reduce_sum(loss(labels, tf.cast(outputs, tf.float32)))

    assert division(model, compute, (inputs, labels, None)) is (Parts.SUM if kind == "each" else parts)


@pytest.mark.parametrize(("off", "agrees"), [(3e-6, {Parts.MEAN}), (3e-5, set())])
def test_a_mean_is_one_but_for_rounding(off: float, agrees: set[Parts]) -> None:
    assert agreeing(1.5 * (1 + off), 1.0, 2.0, share=0.5) == agrees
