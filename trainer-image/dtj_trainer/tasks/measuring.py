"""A task that ships, with metrics of Keras' next to its own. Imports TensorFlow."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import LearningTask, Serving, Tensor
from dtj_trainer.tasks.aggregation import ByExample
from dtj_trainer.tasks.heads import flat, is_sparse


class Measuring:
    """See `dtj_trainer.tasks.LearningTask`."""

    def __init__(self, task: LearningTask, names: Sequence[str], *, classes: int) -> None:
        """To be called outside of any strategy's scope.

        Args:
            names: of Keras' metrics.
            classes: that the labels are numbers of; 0 if they are numbers to be predicted.
        """
        self._task = task
        self._made = [_made(name, classes) for name in names]
        shape = [2, classes if classes > 2 else 1]
        for metric in self._made:
            # Some make their variables when they first see how many outputs there are.
            metric.update_state(tf.zeros(shape), tf.zeros(shape))
            metric.reset_state()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of the task itself, which are means over the examples."""
        return self._task.metrics

    @property
    def serving(self) -> Serving | None:
        """See `LearningTask`."""
        return self._task.serving

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """See `LearningTask`."""
        return self._task.build_model(keras, data)

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """See `LearningTask`."""
        return self._task.compute_metrics(outputs, labels)

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """See `LearningTask`."""
        return self._task.serving_outputs(outputs)

    def objective(self, model: Any, data: Source, *, batch: int | None) -> "MeasuredObjective":
        """The loss of the task, and all metrics.

        Args:
            batch: global batch size; None: whatever each batch has, on one replica.
        """
        return MeasuredObjective(self._task, model, self._made, batch=batch)


class MeasuredObjective:
    """See `dtj_trainer.tasks.aggregation.Objective`. It sums how much the variables of a metric grow from zero."""

    def __init__(self, task: LearningTask, model: Any, metrics: Sequence[Any], *, batch: int | None) -> None:
        self._task = task
        self._by_example = ByExample(task, model, batch=batch)
        self._metrics = metrics
        self._sizes = [[int(np.prod(variable.shape)) for variable in metric.variables] for metric in metrics]
        self.size = self._by_example.size + sum(map(sum, self._sizes))

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """See `Objective`."""
        loss, sums = self._by_example.loss(outputs, labels, weights, inputs)
        expected, found = _compared(self._task.serving_outputs(outputs), labels)
        parts = [sums]
        for metric in self._metrics:
            zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]
            grown = metric.stateless_update_state(zeros, expected, found)
            parts += [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in grown]
        return loss, tf.stop_gradient(tf.concat(parts, axis=0))

    def by_batch(self) -> AbstractContextManager[None]:
        """See `Objective`. The sums are the same however the examples are divided."""
        return nullcontext()

    def means(self, sums: Any) -> Mapping[str, float]:
        """See `Objective`."""
        at = self._by_example.size
        found = dict(self._by_example.means(sums[:at]))
        for metric, sizes in zip(self._metrics, self._sizes, strict=True):
            values = []
            for variable, size in zip(metric.variables, sizes, strict=True):
                values.append(tf.cast(tf.reshape(tf.constant(sums[at : at + size]), variable.shape), variable.dtype))
                at += size
            found[metric.name] = float(metric.stateless_result(values))
        return found


def _made(name: str, classes: int) -> Any:
    if name == "F1Score":
        # Of one output, the largest is always the right one: it needs a threshold.
        return keras.metrics.F1Score(average="macro", threshold=0.5 if classes == 2 else None)
    return getattr(keras.metrics, name)()


def _compared(served: Mapping[str, Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
    """What is expected and what was found, as Keras' metrics take them: [batch, 1], or [batch, classes]."""
    if "probabilities" not in served:
        return tf.reshape(tf.cast(labels, tf.float32), [-1, 1]), tf.reshape(served["value"], [-1, 1])
    found = served["probabilities"]
    if found.shape[-1] == 2:
        return tf.reshape(tf.cast(flat(labels), tf.float32), [-1, 1]), found[:, 1:]
    if is_sparse(labels):
        return tf.one_hot(tf.cast(flat(labels), tf.int64), found.shape[-1]), found
    return tf.cast(labels, tf.float32), found
