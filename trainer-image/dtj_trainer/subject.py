"""What a job learns and from what: shipped or the user's own. Imports TensorFlow.

Made after the strategy, since measuring data runs TensorFlow, and MultiWorkerMirrored must be made before anything
runs. It comes to the same in every task of a job.
"""

import importlib
from collections.abc import Callable

from dtj_trainer.config import Config
from dtj_trainer.data.arrays import Arrays
from dtj_trainer.data.source import Source
from dtj_trainer.registry import DATASETS, TASKS
from dtj_trainer.tasks import Task


def prepare(config: Config, *, say: Callable[[str], object]) -> tuple[Task, Source]:
    """The task, and the source that feeds its model.

    Raises:
        UsageError: the user's own model or data is not as it has to be.
    """
    data = _data(config)
    if config.own.model:
        from dtj_trainer.own.calling import load
        from dtj_trainer.own.task import OwnTask

        return OwnTask(config.own.model, load(config.own.model), data, loss=config.own.loss, say=say), data
    task, source = importlib.import_module(TASKS[config.task].module).prepare(data)
    return task, source


def _data(config: Config) -> Source:
    if config.own.data:
        from dtj_trainer.own.calling import load
        from dtj_trainer.own.source import OwnData

        return OwnData(config.own.data, load(config.own.data), shuffle=config.own.shuffle)
    return Arrays(importlib.import_module(DATASETS[config.dataset]).load())
