"""The tasks and data sets that ship: known without importing TensorFlow or NumPy."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ROWS, IMAGES, TEXTS = "rows of numbers", "images", "texts"


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A kind of model with its loss and its metrics, and the data sets that it can learn from."""

    inputs: str
    """What it learns from: ROWS, IMAGES or TEXTS."""
    datasets: tuple[str, ...]
    """Names in DATASETS; the first is the one where none is given."""
    learning_rates: Mapping[str, float]
    """Name of an optimizer -> its rate where none is given."""
    predicts_numbers: bool = False
    """Whether labels are numbers to be predicted, and not classes."""


DATASETS = ("digits", "reviews", "diabetes", "breast-cancer")
"""Of `dtj_trainer.datasets.LOAD`."""

TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "image-classification": TaskEntry(
            inputs=IMAGES,
            datasets=("digits",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
        "text-classification": TaskEntry(
            inputs=TEXTS,
            datasets=("reviews",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.5}),
        ),
        "tabular-regression": TaskEntry(
            inputs=ROWS,
            datasets=("diabetes",),
            # The loss is in the square of the label's unit, and so are its gradients: plain SGD has to make up for it.
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 1e-6}),
            predicts_numbers=True,
        ),
        "tabular-classification": TaskEntry(
            inputs=ROWS,
            datasets=("breast-cancer",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
    }
)
"""Of `dtj_trainer.tasks.shipped.FIT`."""
