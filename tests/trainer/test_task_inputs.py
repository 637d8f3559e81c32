"""Which examples of a user's own a built-in task learns from; all others end in one line."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import UsageError
from dtj_trainer.training import model

ROWS = np.arange(120, dtype="float32").reshape(40, 3)
NUMBERS = np.arange(40) % 3


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def prepare(task: str, *parts: Any) -> Any:
        module = ModuleType("mine")
        whole = tf.data.Dataset.from_tensor_slices(parts)
        # The first eight are held out.
        module.data = lambda: {"training": whole.skip(8), "held_out": whole.take(8)}  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "mine", module)
        return model.prepare(parse([f"--task={task}", "--data=mine:data"], {}))

    return prepare


def refusal(prepared: Callable[..., Any], task: str, *parts: Any) -> str:
    with pytest.raises(UsageError) as refused:
        prepared(task, *parts)
    text = str(refused.value)
    assert text.startswith("--data=mine:data: ")
    assert "\n" not in text
    return text.removeprefix("--data=mine:data: ")


@pytest.mark.parametrize(
    "labels",
    [NUMBERS, NUMBERS[:, None], NUMBERS.astype("float32"), np.eye(3, dtype="int64")[NUMBERS], np.full((40, 3), 1 / 3)],
)
def test_each_way_to_say_one_of_three_classes_makes_three(prepared: Callable[..., Any], labels: Any) -> None:
    model, _ = prepared("tabular-classification", ROWS, labels)
    assert model.serving.answer(tf.zeros((2, 3)))["probabilities"].shape == (2, 3)


def test_a_class_of_held_out_examples_alone_counts(prepared: Callable[..., Any]) -> None:
    labels = NUMBERS % 2
    labels[4] = 2
    model, data = prepared("tabular-classification", ROWS, labels)
    assert model.build(data).output_shape == (None, 3)


@pytest.mark.parametrize(
    ("labels", "printed"),
    [
        (NUMBERS - 1, "a label is -1; classes are whole numbers from 0 on"),
        (NUMBERS / 2, "a label is 0.5; classes are whole numbers from 0 on"),
        (np.where(NUMBERS, NUMBERS, np.nan), "a label is nan; classes are whole numbers from 0 on"),
        (np.ones((40, 2)), "a label is 1, 1; a label of several numbers is a share for each class"),
        (NUMBERS * 0, "every label is 0; there is nothing to distinguish"),
        (NUMBERS.astype(str), "gives labels of TensorSpec(shape=(None,), dtype=tf.string, name=None), and the task"),
        (np.zeros((40, 2, 2)), "gives labels of TensorSpec(shape=(None, 2, 2), dtype=tf.float64, name=None), and the"),
        ({"a": NUMBERS, "b": NUMBERS}, "gives labels of {'a': TensorSpec("),
    ],
)
def test_labels_that_name_no_class_are_refused(prepared: Callable[..., Any], labels: Any, printed: str) -> None:
    assert refusal(prepared, "tabular-classification", ROWS, labels).startswith(printed)


def test_several_numbers_to_predict_are_refused(prepared: Callable[..., Any]) -> None:
    assert refusal(prepared, "tabular-regression", ROWS, ROWS[:, :2]) == (
        "gives labels of 2 numbers, and the task tabular-regression predicts one; choose one of them, or give a model "
        "of your own with --model"
    )


def test_weights_of_examples_count_in_the_loss(prepared: Callable[..., Any]) -> None:
    model, data = prepared("tabular-classification", ROWS, NUMBERS, NUMBERS)
    built, (inputs, labels, counts) = model.build(data), next(iter(data.batches(batch=12, seed=0)))
    assert counts.numpy().tolist() == labels.numpy().tolist()
    loss, _ = model.objective(built, data, batch=12).loss(built(inputs), labels, counts, inputs)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, built(inputs))
    assert float(loss) == pytest.approx(float(tf.reduce_sum(each * tf.cast(counts, tf.float32)) / 12), rel=1e-5)


@pytest.mark.parametrize(
    ("task", "inputs", "printed"),
    [
        (
            "image-classification",
            ROWS,
            "holds rows of numbers, and the task image-classification takes images; give --task=tabular-regression or "
            "--task=tabular-classification",
        ),
        (
            "tabular-regression",
            np.array(["word"] * 40),
            "holds texts, and the task tabular-regression takes rows of numbers; give --task=text-classification",
        ),
        (
            "text-classification",
            np.zeros((40, 4, 4, 3), "float32"),
            "holds images, and the task text-classification takes texts; give --task=image-classification",
        ),
        (
            "image-classification",
            np.zeros((40, 1, 4, 3), "float32"),
            "holds images of 1x4, which image-classification cannot halve; give a model of your own with --model",
        ),
        ("image-classification", {"a": ROWS}, "holds inputs of dict, and the task image-classification takes images;"),
        ("tabular-regression", np.zeros((40, 2, 3)), "holds examples of shape [2, 3], and the task tabular-regression"),
    ],
)
def test_inputs_of_another_task_are_refused_with_its_name(
    prepared: Callable[..., Any], task: str, inputs: Any, printed: str
) -> None:
    assert refusal(prepared, task, inputs, NUMBERS).startswith(printed)
