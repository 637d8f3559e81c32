"""A `compute_metrics` of the user's own: what it returns, of metrics that steps and replicas put together.

Imports TensorFlow.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.training.loss_division import part_of
from dtj_trainer.training.metric_values import numbers
from dtj_trainer.training.test_step import leaving, of_one_batch, updating

Tensor = Any
State = Sequence[tuple[Any, Tensor]]
"""Variables and their values."""


class OwnMetrics:
    """The `compute_metrics` of one model."""

    def __init__(self, name: object, model: Any, sample: tuple[Any, Any, Any, Any]) -> None:
        """Calls it for a few examples; nothing is changed.

        Args:
            name: of the model.
            model: built and compiled.
            sample: the outputs for two examples, their labels, weights and inputs.
        """
        self._model = model
        self._sample = sample
        compiled = keras3.metrics_of(model)
        self._of_losses = [one for one in keras3.updated_by_keras(model) if one is not compiled]
        # Keras gives one that is within two others, or that the model adds again, twice.
        every = [one for one in dict.fromkeys(model.metrics) if all(one is not other for other in self._of_losses)]
        updated: set[int] = set()

        def noting(metric: Any, update: Callable[..., Any], *values: Any, **options: Any) -> Any:
            updated.add(id(metric))
            return update(*values, **options)

        with keras.StatelessScope(), updating(every, noting):
            self.update(*sample)
        self.metrics = [one for one in every if id(one) in updated]
        """Those that it updates."""
        ones = [(one, tf.ones_like(tf.convert_to_tensor(one))) for metric in every for one in metric.variables]
        here = {id(variable) for metric in self.metrics for variable in metric.variables}
        losses = dict.fromkeys((one.name for one in self._of_losses), 1.0)
        first = self._returned([(one, value) for one, value in ones if id(one) in here], losses)
        self._left_out = of_one_batch(first, self._returned(ones, losses, slice(0, 1)))
        names = {metric.name for metric in every}
        returned = ", ".join(one for one in self._left_out if one not in names)
        self.not_shown = returned and (
            f"{name}: {type(model).__name__}.compute_metrics returns {returned} of single batches, which is not shown; "
            "update a metric of the model with it, and return its result"
        )
        """What it returns that is of one batch, and no metric adds up, as a line says it; empty without any."""

    def update(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> Any:
        """Calls it: updates the metrics, and returns what it does."""
        return type(self._model).compute_metrics(self._model, inputs, labels, outputs, sample_weight=weights)

    def results(self, state: State, losses: Mapping[str, float]) -> dict[str, float]:
        """The numbers that it returns once the metrics and the losses are these, without those of single batches."""
        found = self._returned(state, losses)
        return {name: value for name, value in found.items() if name not in self._left_out}

    def _returned(self, state: State, losses: Mapping[str, float], part: slice = slice(None)) -> dict[str, float]:
        given = part_of(self._sample, part)
        # Each of Keras' own is a Mean: a sum, and a number of what is in it.
        means = [
            (variable, tf.cast(value, variable.dtype))
            for metric in self._of_losses
            for variable, value in zip(metric.variables, (losses[metric.name], 1), strict=True)
        ]
        with keras.StatelessScope(state_mapping=[*state, *means]), updating(self.metrics, leaving):
            return numbers(self.update(*given))
