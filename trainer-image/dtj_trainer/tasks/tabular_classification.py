"""One label for a row of numbers. Imports TensorFlow."""

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import LearningTask
from dtj_trainer.tasks.heads import head_for
from dtj_trainer.tasks.statistics import MomentsOf, class_names, training_examples
from dtj_trainer.tasks.tabular import Tabular


def prepare(data: Source) -> tuple[LearningTask, Source]:
    """See `dtj_trainer.tasks`."""
    columns = MomentsOf()
    for inputs, _ in training_examples(data):
        columns.add(inputs)
    return Tabular(head_for(len(class_names(data))), inputs=columns.moments()), data
