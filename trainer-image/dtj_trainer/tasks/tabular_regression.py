"""A number for a row of numbers. Imports TensorFlow."""

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import LearningTask
from dtj_trainer.tasks.heads import head_for
from dtj_trainer.tasks.statistics import MomentsOf, training_examples
from dtj_trainer.tasks.tabular import Tabular


def prepare(data: Source) -> tuple[LearningTask, Source]:
    """See `dtj_trainer.tasks`."""
    columns, numbers = MomentsOf(), MomentsOf()
    for inputs, labels in training_examples(data):
        columns.add(inputs)
        numbers.add(labels.reshape(-1, 1))
    return Tabular(head_for(0), inputs=columns.moments(), labels=numbers.moments()), data
