"""Names of the tasks and data sets, and where their code is: known without importing TensorFlow or NumPy."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ROWS, IMAGES, TEXTS = "rows of numbers", "images", "texts"


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A kind of model with its loss and its metrics, and the data sets that it can learn from."""

    module: str
    """Where `prepare` is defined; see `dtj_trainer.tasks`."""
    inputs: str
    """What it learns from: ROWS, IMAGES or TEXTS."""
    datasets: tuple[str, ...]
    """Names in DATASETS; the first is the one where none is given."""
    learning_rates: Mapping[str, float]
    """Name of an optimizer -> its rate where none is given."""
    predicts_numbers: bool = False
    """Whether labels are numbers to be predicted, and not classes."""


DATASETS: Mapping[str, str] = MappingProxyType(
    {
        "digits": "dtj_trainer.datasets.digits",
        "reviews": "dtj_trainer.datasets.reviews",
        "diabetes": "dtj_trainer.datasets.diabetes",
        "breast-cancer": "dtj_trainer.datasets.breast_cancer",
    }
)
"""Name of a data set -> module with `load() -> dtj_trainer.datasets.Dataset`."""

TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "image-classification": TaskEntry(
            module="dtj_trainer.tasks.image_classification",
            inputs=IMAGES,
            datasets=("digits",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
        "text-classification": TaskEntry(
            module="dtj_trainer.tasks.text_classification",
            inputs=TEXTS,
            datasets=("reviews",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.5}),
        ),
        "tabular-regression": TaskEntry(
            module="dtj_trainer.tasks.tabular_regression",
            inputs=ROWS,
            datasets=("diabetes",),
            # The loss is in the square of the label's unit, and so are its gradients: plain SGD has to make up for it.
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 1e-6}),
            predicts_numbers=True,
        ),
        "tabular-classification": TaskEntry(
            module="dtj_trainer.tasks.tabular_classification",
            inputs=ROWS,
            datasets=("breast-cancer",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
    }
)
