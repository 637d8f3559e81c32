"""ParameterServer and Pipeline take the mean of one loss over single examples: anything else is one line."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.own_dataset import OwnData
from dtj_trainer.errors import UsageError
from dtj_trainer.training.model import ModelFactory

DATA = Name(flag="--data", module="mine", function="data")
OF: dict[str, Any] = {"ParameterServer": tf_keras, "Pipeline": keras}


def flat(y: Any, p: Any) -> Any:
    return tf.reshape(tf.square(y - p), [-1])


def chosen(y: Any, p: Any) -> Any:
    return tf.boolean_mask(tf.square(y - p), y > 0)


def masked_mean(y: Any, p: Any) -> Any:
    counts = tf.cast(y > 0, p.dtype)
    return tf.reduce_sum(counts * tf.square(y - p)) / tf.reduce_sum(counts)


def root(y: Any, p: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(y - p)))


def reducing(of: Any) -> Any:
    class Largest(of.losses.Loss):  # type: ignore[misc]
        def __call__(self, y: Any, p: Any, sample_weight: Any = None) -> Any:
            return tf.reduce_max(tf.square(y - p))

        def call(self, y: Any, p: Any) -> Any:
            return tf.reduce_mean(tf.square(y - p), axis=-1)

    return Largest()


def computing(of: Any) -> Any:
    class Own(of.Model):  # type: ignore[misc]
        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            return root(y, y_pred)

    return Own


def centred(of: Any) -> Any:
    class Centred(of.layers.Layer):  # type: ignore[misc]
        def call(self, h: Any) -> Any:
            return h - tf.reduce_mean(h, axis=0)

    return Centred()


def adding(of: Any, add: Any) -> Any:
    class Adding(of.layers.Layer):  # type: ignore[misc]
        def call(self, h: Any) -> Any:
            self.add_loss(add(tf.square(h)))
            return h

    return Adding()


LOSSES: dict[str, Callable[[Any], Any]] = {
    "flat": lambda _: flat,
    "chosen": lambda _: chosen,
    "masked_mean": lambda _: masked_mean,
    "one_number": lambda _: root,
    "over_examples": lambda of: of.losses.CosineSimilarity(axis=0),
    "own_call": reducing,
    "summed": lambda of: of.losses.MeanSquaredError(reduction="sum"),
}


def made(
    strategy: str, loss: Any = "mse", *, kind: Any = None, layer: Any = None, last: Any = None, **options: Any
) -> ModelFactory:
    of = OF[strategy]

    def build() -> Any:
        x = h = of.Input((6,))
        for one in (of.layers.Dense(4), *([layer(of)] if layer else ())):
            h = one(h)
        h = of.layers.Dense(3)(h)
        model = (kind(of) if kind else of.Model)(x, last(of)(h) if last else h)
        model.compile(optimizer="sgd", loss=loss, **options)
        return model

    numbers = np.random.default_rng(0).normal(size=(48, 9)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((numbers[:, :6], numbers[:, 6:]))
    data = OwnData(DATA, lambda: {"training": rows, "held_out": rows.take(8)}, shuffle=False)
    return ModelFactory("--model", build, data, loss=None, strategy=strategy)


@pytest.mark.parametrize("strategy", OF)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_is_no_mean_over_examples_is_one_line(strategy: str, loss: str) -> None:
    with pytest.raises(UsageError, match=rf"--model: strategy {strategy} takes the mean of .*use strategy Multi.*$"):
        made(strategy, LOSSES[loss](OF[strategy]))


@pytest.mark.parametrize("strategy", OF)
@pytest.mark.parametrize("loss", ["mse", flat])
def test_an_output_of_one_axis_is_one_line(strategy: str, loss: Any) -> None:
    with pytest.raises(UsageError, match=r"the output has shape \[batch\]; return an output of shape \[batch, 1\], or"):
        made(strategy, loss, last=lambda of: of.layers.Lambda(lambda h: h[:, 0]))


@pytest.mark.parametrize("strategy", OF)
def test_a_compute_loss_of_the_models_own_is_one_line(strategy: str) -> None:
    with pytest.raises(UsageError, match=rf"--model: strategy {strategy} .*knows no compute_loss of the model's own;"):
        made(strategy, kind=computing)


@pytest.mark.parametrize("strategy", OF)
def test_a_metric_of_the_batch_is_no_reason_to_refuse(strategy: str) -> None:
    assert made(strategy, metrics=[root]).metrics == ("loss", "mean_absolute_error")


def test_a_layer_that_compares_examples_is_not_given_micro_batches() -> None:
    with pytest.raises(UsageError, match=r"--model: layer .* \(Centred\) gives .*; compute it over the last axes, or"):
        made("Pipeline", layer=centred)


def test_an_added_loss_that_is_no_mean_is_not_given_micro_batches() -> None:
    with pytest.raises(UsageError, match=r"--model: strategy Pipeline takes .*\(layer .* \(Adding\)\); add the mean"):
        made("Pipeline", layer=lambda of: adding(of, tf.reduce_sum))
    assert made("Pipeline", layer=lambda of: adding(of, tf.reduce_mean))
