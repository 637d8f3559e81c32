"""Class weights that do not fit the data are refused in one line, before the first step."""

from typing import Any

import pytest
import tensorflow as tf

from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import UsageError
from dtj_trainer.training.class_weights import weighted
from dtj_trainer.user_code.dataset import OwnData


def source(*columns: Any) -> OwnData:
    """The examples as `--data` gives them."""
    name = Name(flag="--data", module="mine", function="data")
    return OwnData(name, lambda: tf.data.Dataset.from_tensor_slices(columns), shuffle=False)


INPUTS = tf.zeros([30, 4])
LABELS = tf.range(30) % 3


@pytest.mark.parametrize(
    ("columns", "weights", "line"),
    [
        ((INPUTS, LABELS), (1.0, 2.0), "label 2 has no weight; give each class one"),
        ((INPUTS, LABELS - 1), (1.0, 2.0), "label -1 has no weight; give each class one"),
        ((INPUTS, LABELS, tf.ones([30])), (1.0, 2.0, 3.0), "the examples have weights already; "),
        ((INPUTS, tf.one_hot(LABELS, 3)), (1.0, 2.0), "2 weights, but the labels have 3 classes"),
        ((INPUTS, {"a": LABELS, "b": LABELS}), (1.0, 2.0, 3.0), "needs one class for each example; "),
    ],
)
def test_class_weights_that_do_not_fit_the_labels_are_refused(
    columns: tuple[Any, ...], weights: tuple[float, ...], line: str
) -> None:
    with pytest.raises(UsageError) as refused:
        weighted(source(*columns), weights, "--class-weights=...")
    assert str(refused.value).startswith(f"--class-weights=...: {line}")
