"""What a job learns and from what: shipped or the user's own. Imports TensorFlow.

Made after the strategy, since measuring data runs TensorFlow, and MultiWorkerMirrored must be made before anything
runs. It comes to the same in every task of a job.
"""

import importlib
import logging
from types import ModuleType

import keras

from dtj_trainer import datasets
from dtj_trainer.config.cluster import EVALUATOR
from dtj_trainer.config.entry_points import Name
from dtj_trainer.config.execution import TASKS
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.full_batches import Arrays, FullBatches
from dtj_trainer.data.open_files import open_files
from dtj_trainer.data.service import FromService
from dtj_trainer.data.source import Source, diagnosing_data_errors
from dtj_trainer.data.task_examples import check_inputs, check_labels
from dtj_trainer.process.user_function import load
from dtj_trainer.tasks import shipped
from dtj_trainer.training.model import ModelFactory

log = logging.getLogger(__name__)


def prepare(config: Config) -> tuple[ModelFactory, Source]:
    """The model, and the source that feeds it.

    Raises:
        UsageError: the user's own model or data is not as it has to be.
    """
    data = _data(config)
    with diagnosing_data_errors(data):
        if config.user_code.model:
            name: Name | str = config.user_code.model
            build, serving = load(config.user_code.model), None
        else:
            name = f"--task={config.task}"
            if config.user_code.data:
                check_inputs(config.task, data.input_spec, data.name)
                check_labels(config.task, data)
            fitted = shipped.FIT[config.task](data, _library(config))
            build, data, serving = fitted.build, fitted.data, fitted.serving
        data = _served(config, data)
        model = ModelFactory(
            name, build, data,
            loss=config.user_code.loss, serving=serving, strategy=config.strategy,
            log_level=config.cluster.common_log_level,
        )  # fmt: skip
    return model, data


def _library(config: Config) -> ModuleType:
    """The Keras of the models that ship."""
    return importlib.import_module("tf_keras") if config.strategy == "ParameterServer" else keras


def _data(config: Config) -> Source:
    if config.user_code.data:
        from dtj_trainer.data.own_dataset import OwnData

        return OwnData(config.user_code.data, load(config.user_code.data), shuffle=config.user_code.shuffle)
    if config.data.where:
        return open_files(
            config, numbers=_predicts_numbers(config), task=None if config.user_code.model else config.task
        )
    return Arrays(datasets.LOAD[config.dataset]())


def _predicts_numbers(config: Config) -> bool:
    """Whether labels are numbers; a loss of Keras' that compares classes has it in its name."""
    if config.user_code.model:
        return "crossentropy" not in (config.user_code.loss or "").replace("_", "").lower()
    return TASKS[config.task].predicts_numbers


def _served(config: Config, source: Source) -> Source:
    """The source by way of the job's tf.data service, where it has one; held-out examples are read here."""
    if config.data.service is None or config.cluster.task.role == EVALUATOR:
        return source
    if isinstance(source, FullBatches):
        log.log(
            config.cluster.common_log_level,
            f"data: batches come from the tf.data service at {config.data.service}, in no repeatable order",
        )
        return FromService(source, config)
    log.log(
        config.cluster.common_log_level,
        f"data: {source.name} is read by each task itself, since the tf.data service cannot divide it",
    )
    return source
