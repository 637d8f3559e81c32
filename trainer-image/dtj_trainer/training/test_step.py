"""A `test_step` of the user's: called for whole batches, whatever replica has them. Imports TensorFlow.

Keras' `evaluate` calls it for one batch after the other, and shows at the end the results of the model's metrics, or
what the last call returned. Here each call begins with metrics at zero. What it leaves in their variables is summed
over batches, replicas and workers, and a last call that updates no metric returns what follows from the sums.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.errors import UsageError
from dtj_trainer.training.loss_division import part_of
from dtj_trainer.training.metric_values import MetricSums, numbers

Tensor = Any


class OwnTestStep:
    """Evaluates by the model's own `test_step`."""

    def __init__(self, name: object, model: Any, sample: Any) -> None:
        """Calls it for a few examples. To be called in the strategy's scope.

        Args:
            name: of the model.
            model: built and compiled; its losses are those of whole batches.
            sample: two held-out examples, as the model's `test_step` takes them.

        Raises:
            UsageError: a metric does not add up, or no metric adds up what it returns.
        """
        self._model = model
        self._sample = sample
        self._step = rewritten(model.test_step)
        # Some metrics make their variables when they are first called.
        self._after(sample, {})
        self._metrics = metrics_of(model)
        owned = {id(variable): (metric, variable) for metric in self._metrics for variable in metric.variables}
        self._variables = [variable for _, variable in owned.values()]

        def after(before: Sequence[Tensor], part: slice) -> list[Tensor]:
            return self._after(part_of(sample, part), self._given(before))

        self._metric_sums = MetricSums(name, list(owned.values()), after)
        self.size = self._metric_sums.size
        self._of_one_batch = self._names_of_one_batch()
        if not self.means(np.ones(self.size)):
            raise UsageError(
                f"{name}: {type(model).__name__}.test_step returns {', '.join(self._of_one_batch) or 'nothing'}, "
                "which no metric adds up over the batches; update a metric of the model with it"
            )

    @property
    def not_shown(self) -> Sequence[str]:
        """The names of what it returns that is of one batch, and no metric adds up."""
        return self._of_one_batch

    def sums(self, examples: Any) -> Tensor:
        """What a whole batch adds to the sums: float32, [size]."""
        parts = self._metric_sums.parts(self._after(examples, self._given(self._metric_sums.start)))
        # A step may have no metric.
        return tf.concat([tf.zeros(0), *parts], axis=0)

    def joined(self, one: Any, other: Any) -> Any:
        """The sums of two batches, or of several, as one."""
        return self._metric_sums.joined(one, other)

    def means(self, sums: Any) -> dict[str, float]:
        """The metrics by name."""
        _, shown = self._finally(self._metric_sums.values(sums), self._sample)
        return {name: value for name, value in shown.items() if name not in self._of_one_batch}

    def _after(self, examples: Any, metrics: Mapping[int, tuple[Any, Tensor]]) -> list[Tensor]:
        """The variables of the metrics after it; nothing is changed.

        Args:
            metrics: variables and their values before it; all others are as they are.
        """
        with self._with_values(metrics) as read:
            returned = self._step(examples)
            if not isinstance(returned, Mapping):
                raise UsageError(
                    f"{type(self._model).__name__}.test_step returns a {type(returned).__name__}; return a dict of "
                    "metrics"
                )
            return [read(variable) for variable, _ in metrics.values()]

    @contextmanager
    def _with_values(self, metrics: Mapping[int, tuple[Any, Tensor]]) -> Iterator[Callable[[Any], Tensor]]:
        # In such a scope, Keras computes the penalties of weights from what it is given here.
        weights = [(one, tf.convert_to_tensor(one.value)) for one in self._model.variables]
        mapping = [*weights, *metrics.values()]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope, keras3.as_on_one_replica():
            yield scope.get_current_value

    def _finally(self, values: Sequence[Tensor], examples: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What it returns and what Keras shows of it, if the variables of the metrics have these values at the end."""
        with updating(self._metrics, leaving), self._with_values(self._given(values)):
            returned = self._step(examples)
            result = self._model.get_metrics_result()
            shown = result if set(result) == set(returned) else returned
            return numbers(returned), numbers(shown)

    def _names_of_one_batch(self) -> list[str]:
        """What it returns that depends on the batch, and not on metrics alone."""
        ones = self._metric_sums.values(np.ones(self.size))
        first = tf.nest.map_structure(lambda part: part[:1], self._sample)
        (one, _), (other, _) = (self._finally(ones, examples) for examples in (self._sample, first))
        return of_one_batch(one, other)

    def _given(self, values: Sequence[Tensor]) -> dict[int, tuple[Any, Tensor]]:
        return {id(one): (one, value) for one, value in zip(self._variables, values, strict=True)}


def of_one_batch(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names of what depends on the batch: of results for two batches while metrics are the same."""
    return [name for name in one if name not in other or not np.array_equal(one[name], other[name], equal_nan=True)]


def metrics_of(model: Any) -> list[Any]:
    """All that a model of either Keras has, whether its own property `metrics` gives them or not."""
    metrics = [*model.metrics, *two_kerases.keras_of(model).Model.metrics.fget(model)]
    return list({id(metric): metric for metric in metrics}.values())


def leaving(_metric: Any, _update: Callable[..., Any], *_values: Any, **_options: Any) -> None:
    """Updates no metric: one of the functions for `updating`."""


@contextmanager
def updating(metrics: Sequence[Any], by: Callable[..., Any]) -> Iterator[None]:
    """While this lasts, (metric, its `update_state`, arguments) is called in place of a metric's `update_state`."""
    before = [vars(metric).get("update_state") for metric in metrics]
    for metric in metrics:
        # Not by setattr, which would look for variables in it.
        vars(metric)["update_state"] = partial(by, metric, metric.update_state)
    try:
        yield
    finally:
        for metric, function in zip(metrics, before, strict=True):
            del vars(metric)["update_state"]
            if function is not None:
                vars(metric)["update_state"] = function
