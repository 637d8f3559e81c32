"""Evaluates a model of tf_keras, which parameter servers have trained, as its own `evaluate` does. Imports TensorFlow.

It runs on one device, so nothing has to be added up over replicas.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.compat import keras3
from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import UsageError
from dtj_trainer.training.metric_values import DefaultMetric, numbers
from dtj_trainer.training.test_step import metrics_of, updating

log = logging.getLogger(__name__)


class KerasEvaluation:
    """Gives the model one batch after the other, and shows what its metrics say at the end."""

    def __init__(self, name: Name | str, model: Any, *, default: DefaultMetric | None, log_level: int) -> None:
        """Args:
        model: of tf_keras, built and compiled.
        default: what is shown of a model that was compiled without metrics.
        log_level: of the line about what is not shown.
        """
        self._name = name
        self._model = model
        self._log_level: int | None = log_level
        self._is_own = keras3.overrides(model, "test_step")
        if default and not self._is_own and not two_kerases.given_metrics(model):
            library = two_kerases.keras_of(model)
            metric = library.metrics.MeanMetricWrapper(default.values, name=default.name)
            library.Model.compile(model, optimizer=model.optimizer or "sgd", loss=model.loss, metrics=[metric])

    def evaluate(self, batches: Iterable[Any]) -> dict[str, float]:
        """The metrics by name, of all these batches.

        Raises:
            UsageError: no metric adds up what the model's own `test_step` returns.
        """
        for metric in metrics_of(self._model):
            metric.reset_state()
        first = last = None
        returned: Mapping[str, Any] = {}
        for last in batches:
            first = last if first is None else first
            returned = self._model.test_on_batch(
                *keras.utils.unpack_x_y_sample_weight(last), reset_metrics=False, return_dict=True
            )
        return self._of_all_batches(first, last) if self._is_own else numbers(returned)

    def _of_all_batches(self, first: Any, last: Any) -> dict[str, float]:
        """What a `test_step` says of its metrics, whatever examples it is called with."""
        if last is first:
            last = tf.nest.map_structure(lambda part: part[:1], first)
        with updating(metrics_of(self._model), lambda *_, **__: None):
            one, other = (numbers(self._model.test_step(examples)) for examples in (first, last))
        found = {name: one[name] for name in one if np.array_equal(one[name], other.get(name), equal_nan=True)}
        of_one_batch = ", ".join(name for name in one if name not in found)
        step = f"{self._name}: {type(self._model).__name__}.test_step returns"
        if not found:
            raise UsageError(
                f"{step} {of_one_batch or 'nothing'}, which no metric adds up over the batches; update a metric of the "
                "model with it"
            )
        if of_one_batch and self._log_level is not None:
            log.log(
                self._log_level,
                f"{step} {of_one_batch} of single batches, which is not shown; update a metric of the model with it",
            )
            self._log_level = None
        return found
