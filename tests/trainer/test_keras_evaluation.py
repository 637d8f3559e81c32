"""A model of tf_keras, as parameter servers train it, is evaluated to what its own `evaluate` shows."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.held_out_examples import HeldOut
from dtj_trainer.data.own_dataset import OwnData
from dtj_trainer.errors import UsageError
from dtj_trainer.training.evaluation import Evaluation
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.user_code.session_state import check_keras

FEATURES, CLASSES = 6, 3
RANDOM = np.random.default_rng(1)
INPUTS = RANDOM.standard_normal((30, FEATURES)).astype("float32")
LABELS = INPUTS[:, :CLASSES].argmax(axis=1)


def dataset() -> Mapping[str, Any]:
    """The same examples, to train on and held out."""
    return dict.fromkeys(("training", "held_out"), tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)))


DATA = OwnData(Name(flag="--data", module="mine", function="data"), dataset, shuffle=False)


class Guided(tf_keras.Model):
    """Shows its metrics, what follows from one of them, and a value of the last batch."""

    def test_step(self, data: Any) -> Any:
        found = super().test_step(data)
        return {**found, "wrong": 1 - found["accuracy"], "of_batch": tf.reduce_max(data[0])}


class Unshown(tf_keras.Model):
    """Returns a value of a batch alone."""

    def test_step(self, data: Any) -> Any:
        return {"error": tf.reduce_mean(self(data[0], training=False))}


def made(kind: Any = tf_keras.Model, **compiled: Any) -> Any:
    """The same model each time."""
    tf_keras.utils.set_random_seed(0)
    inputs = tf_keras.Input((FEATURES,))
    penalty = tf_keras.regularizers.L2(0.01)
    hidden = tf_keras.layers.Dense(8, "tanh", kernel_regularizer=penalty, activity_regularizer=penalty)(inputs)
    model = kind(inputs, tf_keras.layers.Dense(CLASSES)(hidden))
    model.compile(loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), **compiled)
    return model


def evaluation(build: Callable[[], Any], loss: str | None = None) -> Evaluation:
    """Of a model that parameter servers have trained, with the loss of the command line, where there is one."""
    name = Name(flag="--model", module="mine", function="model")
    factory = ModelFactory(name, build, DATA, loss=loss, strategy="ParameterServer")
    return Evaluation(factory, factory.build(DATA), HeldOut(DATA, "--data=mine:data"), batch=16)


def metrics() -> Any:
    """Some that are not means over the examples."""
    overlap = tf_keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="overlap")
    return made(metrics=["accuracy", overlap], weighted_metrics=[tf_keras.metrics.SparseTopKCategoricalAccuracy(2)])


@pytest.mark.parametrize(
    ("build", "reference"),
    [(metrics, metrics), (made, lambda: made(metrics=["accuracy"])), (lambda: made(Guided, metrics=["accuracy"]),) * 2],
    ids=["compiled metrics", "none: the accuracy", "test_step of its own"],
)
def test_it_is_what_keras_shows_each_time(
    build: Callable[[], Any], reference: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    evaluate, batches = evaluation(build), []
    wanted = reference().evaluate(dataset()["held_out"].batch(16), return_dict=True, verbose=0)
    of_batch = wanted.pop("of_batch", None)
    assert evaluate(batch_done=lambda: batches.append(1)) == pytest.approx(wanted)
    assert len(batches) == 2
    assert evaluate() == pytest.approx(wanted)
    line = (
        "--model=mine:model: Guided.test_step returns of_batch of single batches, which is not shown; update a metric"
    )
    assert any(record.message.startswith(line) for record in caplog.records) == (of_batch is not None)


def test_a_loss_of_the_command_line_leaves_the_metrics_that_the_model_was_compiled_with() -> None:
    wanted = metrics().evaluate(dataset()["held_out"].batch(16), return_dict=True, verbose=0)
    assert wanted.keys() > {"accuracy", "overlap"}
    assert evaluation(metrics, loss="sparse_categorical_crossentropy")() == pytest.approx(wanted)


def test_a_test_step_without_a_metric_is_refused_before_the_training() -> None:
    with pytest.raises(UsageError, match=r"^--model=mine:model: Unshown.test_step returns error, which no metric adds"):
        evaluation(lambda: made(Unshown))


def test_a_session_takes_it_under_parameter_servers_alone() -> None:
    model = made()
    for parts in ({"model": model}, {"all": [{"one": model.optimizer}]}):
        check_keras(parts, "ParameterServer")
        line = r"^session: checkpoint\((model|all)=...\): \w+ of tf_keras, but strategy Mirrored needs one of Keras 3;"
        with pytest.raises(UsageError, match=line):
            check_keras(parts, "Mirrored")
    for parts in ({"model": made(optimizer="nadam")}, {"all": [tf_keras.optimizers.Nadam()]}):
        with pytest.raises(UsageError, match=r"^session: checkpoint\((model|all)=...\): the Nadam of tf_keras counts"):
            check_keras(parts, "ParameterServer")
