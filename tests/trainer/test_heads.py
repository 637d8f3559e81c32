"""Loss, metric and answer follow the kind of label, and are those of Keras."""

from typing import Any

import numpy as np
import pytest

BATCH = 32
DRAWS = range(5)


def draw(seed: int, *shape: int, spread: float = 10.0) -> Any:
    """Raw outputs, some of them far out."""
    return (np.random.RandomState(seed).standard_normal(shape) * spread).astype("float32")


@pytest.mark.parametrize("seed", DRAWS)
@pytest.mark.parametrize("column", [False, True], ids=["[batch]", "[batch, 1]"])
def test_a_number_is_measured_by_its_squared_and_absolute_error(seed: int, column: bool) -> None:
    import keras

    from dtj_trainer.tasks.heads import head_for

    outputs, labels = draw(seed, BATCH, 1), draw(seed + 1000, BATCH, *([1] if column else []))
    metrics = head_for(0).compute_metrics(keras.ops.convert_to_tensor(outputs), keras.ops.convert_to_tensor(labels))
    wanted = keras.losses.mean_squared_error(labels.reshape(-1, 1), outputs)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)
    wanted = keras.losses.mean_absolute_error(labels.reshape(-1, 1), outputs)
    np.testing.assert_allclose(metrics["mean_absolute_error"], wanted, rtol=1e-5)


@pytest.mark.parametrize("seed", DRAWS)
@pytest.mark.parametrize("column", [False, True], ids=["[batch]", "[batch, 1]"])
def test_one_of_two_classes_is_measured_by_binary_cross_entropy(seed: int, column: bool) -> None:
    import keras

    from dtj_trainer.tasks.heads import head_for

    outputs = draw(seed, BATCH, 1)
    labels = np.random.RandomState(seed).randint(0, 2, (BATCH, *([1] if column else [])))
    metrics = head_for(2).compute_metrics(keras.ops.convert_to_tensor(outputs), keras.ops.convert_to_tensor(labels))
    wanted = keras.losses.binary_crossentropy(labels.reshape(-1, 1).astype("float32"), outputs, from_logits=True)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5, atol=1e-6)
    right = keras.metrics.binary_accuracy(labels.reshape(-1, 1), outputs, threshold=0.0)
    np.testing.assert_array_equal(metrics["accuracy"], np.ravel(right))


@pytest.mark.parametrize("seed", DRAWS)
@pytest.mark.parametrize("kind", ["[batch]", "[batch, 1]", "[batch, classes]"])
def test_one_of_more_classes_is_measured_by_the_cross_entropy_that_its_labels_want(seed: int, kind: str) -> None:
    import keras

    from dtj_trainer.tasks.heads import head_for

    outputs, numbers = draw(seed, BATCH, 5), np.random.RandomState(seed).randint(0, 5, BATCH)
    labels = {
        "[batch]": numbers,
        "[batch, 1]": numbers[:, None],
        "[batch, classes]": np.eye(5, dtype="float32")[numbers],
    }
    metrics = head_for(5).compute_metrics(
        keras.ops.convert_to_tensor(outputs), keras.ops.convert_to_tensor(labels[kind])
    )
    wanted = keras.losses.sparse_categorical_crossentropy(numbers, outputs, from_logits=True)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(metrics["accuracy"], keras.metrics.sparse_categorical_accuracy(numbers, outputs))


def test_a_certain_and_wrong_answer_has_a_finite_loss_with_a_gradient() -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.heads import head_for

    for classes, outputs in ((2, [[200.0]]), (3, [[200.0, 0.0, 0.0]])):
        logits = tf.Variable(outputs)
        label = tf.constant([0 if classes == 2 else 1])
        with tf.GradientTape() as tape:
            loss = head_for(classes).compute_metrics(logits, label)["loss"]
        assert loss.numpy() == pytest.approx([200.0])
        assert abs(tape.gradient(loss, logits).numpy()).max() == pytest.approx(1.0)


@pytest.mark.parametrize("classes", [2, 5])
def test_classes_are_served_as_probabilities_that_add_up_and_the_likeliest(classes: int) -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.heads import head_for

    head = head_for(classes)
    answer = head.serving_outputs(tf.constant(draw(1, BATCH, head.units)))
    assert answer["probabilities"].shape == (BATCH, classes)
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(answer["class"], np.argmax(answer["probabilities"], axis=1))
    assert answer["class"].dtype == tf.int64


def test_a_number_is_served_as_it_is() -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.heads import head_for

    assert head_for(0).serving_outputs(tf.constant([[1.5], [-2.0]]))["value"].numpy().tolist() == [1.5, -2.0]


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_with_a_share_for_each_class_and_numbers_of_classes_as_floats_are_learned_alike(classes: int) -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.heads import head_for

    head = head_for(classes)
    outputs, numbers = tf.constant(draw(1, BATCH, head.units)), np.random.RandomState(1).randint(0, classes, BATCH)
    wanted = head.compute_metrics(outputs, tf.constant(numbers))
    for labels in (
        np.eye(classes, dtype="float32")[numbers],
        np.eye(classes, dtype="int64")[numbers],
        numbers.astype("float32"),
        numbers.astype("uint8")[:, None],
    ):
        found = head.compute_metrics(outputs, tf.constant(labels))
        np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-5)
        np.testing.assert_array_equal(found["accuracy"], wanted["accuracy"])


def test_a_class_that_the_model_does_not_know_is_not_learned_as_one_that_it_knows() -> None:
    import tensorflow as tf

    from dtj_trainer.tasks.heads import head_for

    losses = head_for(2).compute_metrics(tf.zeros((3, 1)), tf.constant([0, 2, 1]))["loss"].numpy()
    assert np.isnan(losses).tolist() == [False, True, False]
