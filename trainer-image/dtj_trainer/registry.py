"""Names of the tasks and data sets, and where their code is: known without importing TensorFlow or NumPy."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A kind of model with its loss and its metrics, and the data sets that it can learn from."""

    module: str
    """Where `TASK`, a `dtj_trainer.tasks.Task`, is defined."""
    datasets: Mapping[str, str]
    """Name of a data set -> module with `load() -> dtj_trainer.datasets.Dataset`."""
    learning_rate: float
    """Used where none is given."""
    predicts_numbers: bool = False
    """Whether the labels of users' files are numbers to be predicted, and not names of classes."""


TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "image-classification": TaskEntry(
            module="dtj_trainer.tasks.image_classification",
            datasets=MappingProxyType({"digits": "dtj_trainer.datasets.digits"}),
            learning_rate=0.003,
        ),
    }
)
