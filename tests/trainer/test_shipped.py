"""Loss, metric and answer of the tasks that ship follow from the labels, and are those of either Keras."""

import importlib
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.data.full_batches import Arrays
from dtj_trainer.datasets import Dataset, Split
from dtj_trainer.tasks.shipped import FIT, Shipped
from dtj_trainer.training.model import ModelFactory

pytestmark = pytest.mark.trainer

BATCH = 32
ROWS = np.zeros((BATCH, 3), "float32")


@pytest.fixture(params=["keras", "tf_keras"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def fitted(labels: Any, library: ModuleType = keras, *, numbers: bool = False) -> Shipped:
    """The task for rows of numbers with these labels, without named classes."""
    split = Split(inputs=ROWS[: len(labels)], labels=labels)
    data = Arrays(Dataset(name="rows", training=split, validation=split, classes=()))
    return FIT["tabular-regression" if numbers else "tabular-classification"](data, library)


def measured(outputs: Any, labels: Any, library: ModuleType = keras, **kind: bool) -> Any:
    """What parameter servers and pipelines measure of each example."""
    task = fitted(labels, library, **kind)
    strategy = "OneDevice" if library is keras else "ParameterServer"
    factory = ModelFactory("--task=any", task.build, task.data, loss=None, strategy=strategy)
    return factory.compute_metrics(tf.constant(outputs), tf.constant(labels))


def draw(seed: int, *shape: int) -> Any:
    """Raw outputs, some of them far out."""
    return (np.random.RandomState(seed).standard_normal(shape) * 10).astype("float32")


@pytest.mark.parametrize("column", [False, True], ids=["[batch]", "[batch, 1]"])
def test_a_number_is_measured_by_its_squared_and_absolute_error(library: ModuleType, column: bool) -> None:
    outputs, labels = draw(0, BATCH, 1), draw(1000, BATCH, *([1] if column else []))
    metrics = measured(outputs, labels, library, numbers=True)
    assert list(metrics) == ["loss", "mean_absolute_error"]
    wanted = keras.losses.mean_squared_error(labels.reshape(-1, 1), outputs)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)
    wanted = keras.losses.mean_absolute_error(labels.reshape(-1, 1), outputs)
    np.testing.assert_allclose(metrics["mean_absolute_error"], wanted, rtol=1e-5)


@pytest.mark.parametrize("column", [False, True], ids=["[batch]", "[batch, 1]"])
def test_one_of_two_classes_is_measured_by_binary_cross_entropy(library: ModuleType, column: bool) -> None:
    outputs = draw(0, BATCH, 1)
    labels = np.random.RandomState(0).randint(0, 2, (BATCH, *([1] if column else [])))
    metrics = measured(outputs, labels, library)
    wanted = keras.losses.binary_crossentropy(labels.reshape(-1, 1).astype("float32"), outputs, from_logits=True)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5, atol=1e-6)
    right = keras.metrics.binary_accuracy(labels.reshape(-1, 1), outputs, threshold=0.0)
    np.testing.assert_array_equal(metrics["accuracy"], np.ravel(right))


@pytest.mark.parametrize("kind", ["[batch]", "[batch, 1]", "float", "[batch, classes]", "[batch, classes] int"])
def test_one_of_more_classes_is_measured_by_the_cross_entropy_that_its_labels_want(
    library: ModuleType, kind: str
) -> None:
    numbers = np.random.RandomState(0).randint(0, 5, BATCH)
    numbers[0] = 4
    outputs = draw(0, BATCH, 5)
    labels = {
        "[batch]": numbers,
        "[batch, 1]": numbers.astype("uint8")[:, None],
        "float": numbers.astype("float32"),
        "[batch, classes]": np.eye(5, dtype="float32")[numbers],
        "[batch, classes] int": np.eye(5, dtype="int64")[numbers],
    }
    metrics = measured(outputs, labels[kind], library)
    wanted = keras.losses.sparse_categorical_crossentropy(numbers, outputs, from_logits=True)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(metrics["accuracy"], keras.metrics.sparse_categorical_accuracy(numbers, outputs))


def test_a_share_of_each_of_two_classes_is_learned_as_one_of_more_classes() -> None:
    outputs, shares = draw(1, BATCH, 2), np.full((BATCH, 2), 0.5, "float32")
    wanted = keras.losses.categorical_crossentropy(shares, outputs, from_logits=True)
    np.testing.assert_allclose(measured(outputs, shares)["loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize(("labels", "outputs"), [([0, 1], [200.0]), ([1, 2], [200.0, 0.0, 0.0])])
def test_a_certain_and_wrong_answer_has_a_finite_loss_with_a_gradient(labels: list[int], outputs: list[float]) -> None:
    task = fitted(np.array(labels))
    loss, logits = task.build().loss, tf.Variable([outputs])
    with tf.GradientTape() as tape:
        value = loss(tf.constant(labels[:1]), logits)
    assert value.numpy() == pytest.approx(200.0)
    assert abs(tape.gradient(value, logits).numpy()).max() == pytest.approx(1.0)


@pytest.mark.parametrize("classes", [2, 5])
def test_classes_are_served_as_probabilities_that_add_up_and_the_likeliest(classes: int) -> None:
    task = fitted(np.arange(BATCH) % classes)
    answer = task.serving.answer(tf.constant(draw(1, BATCH, task.build().output_shape[-1])))
    assert answer["probabilities"].shape == (BATCH, classes)
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(answer["class"], np.argmax(answer["probabilities"], axis=1))
    assert answer["class"].dtype == tf.int64


def test_a_number_is_served_as_it_is() -> None:
    answer = fitted(np.arange(4.0), numbers=True).serving.answer(tf.constant([[1.5], [-2.0]]))
    assert answer["value"].numpy().tolist() == [1.5, -2.0]


def test_a_class_that_the_model_does_not_know_is_not_learned_as_one_that_it_knows(library: ModuleType) -> None:
    loss = fitted(np.arange(4) % 2, library).build().loss
    losses = loss.call(tf.constant([[0.0], [2.0], [1.0]]), tf.zeros((3, 1))).numpy()
    assert np.isnan(losses).tolist() == [False, True, False]
