"""How a loss divides over replicas: what is nearly a mean is none, and what is only rounded is one."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.training.loss_division import EXAMPLES, ChangesModel, Parts, agreeing, division, loss_of_parts

FEATURES = 512
CLASSES = 4
Function = Callable[[Any, Any], Any]


def _squares(y: Any, y_pred: Any) -> Any:
    return tf.reduce_mean(tf.square(y - y_pred), axis=-1)


def _pairs(y: Any, y_pred: Any) -> Any:
    same = tf.cast(y[:, :1] > y[:, :1, tf.newaxis][:, 0], y_pred.dtype)
    distances = tf.reduce_mean(tf.square(y_pred[:, tf.newaxis] - y_pred), axis=-1)
    return tf.reduce_mean(same * distances)


FUNCTIONS: dict[str, tuple[Function, Parts]] = {
    "each": (_squares, Parts.EACH),
    "by feature": (lambda y, y_pred: tf.square(y - y_pred), Parts.EACH),
    "flat": (lambda y, y_pred: tf.reshape(tf.square(y - y_pred), [-1]), Parts.VALUES),
    "mean": (lambda y, y_pred: tf.reduce_mean(_squares(y, y_pred)), Parts.MEAN),
    "sum": (lambda y, y_pred: tf.reduce_sum(_squares(y, y_pred)), Parts.SUM),
    "root": (lambda y, y_pred: tf.sqrt(tf.reduce_mean(_squares(y, y_pred))), Parts.NONE),
    "nearly a mean": (
        lambda y, y_pred: tf.reduce_mean(_squares(y, y_pred)) * (1 + 1e-3 * tf.reduce_mean(y_pred)), Parts.NONE,
    ),
    "mean of the largest quarter": (
        lambda y, y_pred: tf.reduce_mean(tf.nn.top_k(_squares(y, y_pred), tf.shape(y)[0] // 4 + 1)[0]), Parts.NONE,
    ),
    "each of a pair": (
        lambda y, y_pred: _squares(y, y_pred) + tf.square(tf.reduce_mean(y_pred, -1) - tf.reduce_mean(y_pred)),
        Parts.NONE,
    ),
    "pairs": (_pairs, Parts.NONE),
    "by task": (lambda y, y_pred: tf.reduce_mean(tf.square(y - y_pred), 0), Parts.NONE),
    "nothing": (lambda y, y_pred: tf.zeros_like(y[:, 0]), Parts.NONE),
}  # fmt: skip


def _numbers(rows: int, dtype: str = "float32") -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    labels, outputs = (random.normal(size=(rows, 64)) for _ in range(2))
    return tf.constant(labels, tf.float32), tf.cast(outputs, dtype)


@pytest.mark.parametrize(("loss", "parts"), FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_loss_of_numbers_is_known_by_its_parts(loss: Function, parts: Parts, dtype: str) -> None:
    def of_float32(labels: Any, outputs: Any) -> Any:
        return loss(labels, tf.cast(outputs, tf.float32))

    assert loss_of_parts(of_float32, *_numbers(EXAMPLES, dtype)) is parts


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("kind", ["each", "flat", "mean", "sum", "root", "nearly a mean", "pairs"])
def test_a_few_examples_say_as_much(kind: str, rows: int) -> None:
    loss, parts = FUNCTIONS[kind]
    assert loss_of_parts(loss, *_numbers(rows)) is parts


def _entropies(y: Any, y_pred: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(tf.maximum(y, 0), y_pred, from_logits=True)


def _kept(y: Any, y_pred: Any) -> Any:
    return _entropies(y, y_pred) * tf.cast(y != -100, y_pred.dtype)


def _masked_mean(y: Any, y_pred: Any) -> Any:
    return tf.reduce_sum(_kept(y, y_pred)) / tf.reduce_sum(tf.cast(y != -100, y_pred.dtype))


def _chosen(y: Any, y_pred: Any) -> Any:
    return _entropies(tf.boolean_mask(y, y != -100), tf.boolean_mask(y_pred, y != -100))


def _dice(y: Any, y_pred: Any) -> Any:
    return keras.losses.Dice().call(tf.one_hot(y, CLASSES), tf.nn.softmax(y_pred))


def _contrasted(y: Any, y_pred: Any) -> Any:
    same = tf.cast(y[:, tf.newaxis] == y, y_pred.dtype)
    return tf.reduce_mean(same * tf.reduce_sum(tf.square(y_pred[:, tf.newaxis] - y_pred), axis=-1))


OF_CLASSES: dict[str, tuple[Function, Parts]] = {
    "each": (_entropies, Parts.EACH),
    "values of zero where left out": (_kept, Parts.EACH),
    "masked mean": (_masked_mean, Parts.NONE),
    "values that are left": (_chosen, Parts.VALUES),
    "Dice": (_dice, Parts.NONE),
    "Circle": (lambda y, y_pred: keras.losses.Circle().call(y, tf.math.l2_normalize(y_pred, -1)), Parts.NONE),
    "pairs of a class": (_contrasted, Parts.NONE),
}


@pytest.mark.parametrize("label", [None, -100], ids=["no label is left out", "a label is left out"])
@pytest.mark.parametrize(("loss", "parts"), OF_CLASSES.values(), ids=OF_CLASSES)
def test_a_loss_of_classes_is_known_whether_or_not_these_examples_have_what_it_leaves_out(
    loss: Function, parts: Parts, label: int | None
) -> None:
    labels = np.arange(EXAMPLES) * 7 % CLASSES
    if label is not None and loss not in (_dice,):
        labels[3:9] = label
    outputs = np.random.default_rng(1).normal(size=(EXAMPLES, CLASSES))
    assert loss_of_parts(loss, tf.constant(labels), tf.constant(outputs, tf.float32)) is parts


def test_a_loss_with_noise_is_not_known() -> None:
    def noisy(labels: Any, outputs: Any) -> Any:
        return tf.reduce_sum(_squares(labels, outputs + 0.1 * tf.random.normal(tf.shape(outputs))))

    assert loss_of_parts(noisy, *_numbers(EXAMPLES)) is Parts.NONE


def test_a_loss_sees_the_mask_of_the_outputs() -> None:
    labels, outputs = _numbers(EXAMPLES)
    keras3.put_mask(outputs, tf.constant(np.arange(EXAMPLES) % 3 > 0))

    def of_mask(labels: Any, outputs: Any) -> Any:
        mask = tf.cast(keras3.mask_of(outputs), tf.float32)
        return tf.reduce_sum(_squares(labels, outputs) * mask) / tf.reduce_sum(mask)

    assert loss_of_parts(of_mask, labels, outputs) is Parts.NONE


def test_what_a_loss_raises_for_real_examples_is_raised() -> None:
    with pytest.raises(ValueError, match="no such labels"):
        loss_of_parts(lambda y, y_pred: (_ for _ in ()).throw(ValueError("no such labels")), *_numbers(EXAMPLES))


def _model(policy: str = "float32") -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, "relu", dtype=policy), keras.layers.Dense(64, dtype=policy)]
    return keras.Sequential([keras.Input((FEATURES,)), *layers])


def _batch(rows: int = EXAMPLES) -> tuple[Any, Any, None]:
    random = np.random.default_rng(1)
    return (*(tf.constant(random.normal(size=(rows, size)), tf.float32) for size in (FEATURES, 64)), None)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("kind", ["each", "mean", "sum", "root", "nearly a mean", "pairs"])
def test_the_loss_of_a_model_is_known_by_parts_of_a_batch(kind: str, policy: str) -> None:
    loss, parts = FUNCTIONS[kind]

    def compute(_inputs: Any, labels: Any, outputs: Any, _weights: Any) -> Any:
        return tf.reduce_sum(loss(labels, tf.cast(outputs, tf.float32)))

    assert division(_model(policy), compute, _batch()) is (Parts.SUM if kind == "each" else parts)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_loss_of_a_model_is_known_by_a_few_examples(rows: int) -> None:
    def compute(_inputs: Any, labels: Any, outputs: Any, _weights: Any) -> Any:
        return tf.reduce_mean(tf.square(labels - outputs))

    assert division(_model(), compute, _batch(rows)) is Parts.MEAN


def test_a_loss_that_sets_a_variable_of_the_model_is_named_and_leaves_it_as_it_is() -> None:
    model = _model()
    before = model.get_weights()

    def compute(_inputs: Any, labels: Any, outputs: Any, _weights: Any) -> Any:
        model.layers[0].bias.assign(model.layers[0].bias + 1.0)
        return tf.reduce_mean(tf.square(labels - outputs))

    with pytest.raises(ChangesModel):
        division(model, compute, _batch())
    assert all((one == other).all() for one, other in zip(before, model.get_weights(), strict=True))


@pytest.mark.parametrize(("off", "agrees"), [(3e-6, {Parts.MEAN}), (3e-5, set())])
def test_a_mean_is_one_but_for_rounding(off: float, agrees: set[Parts]) -> None:
    assert agreeing(1.5 * (1 + off), 1.0, 2.0, share=0.5) == agrees
