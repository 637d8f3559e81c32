"""The loss and the metrics of a user's model as it was compiled, exact over the global batch. Imports TensorFlow.

Keras computes them: its `compute_loss` with masks, weights, several outputs and `loss_weights`, its metric objects.
Each Loss in it is replaced by one that is exact over the global batch. A metric is updated from zero at each step, and
the increase of its variables is summed over steps, replicas and workers; its result is computed from the sums.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.source import Source
from dtj_trainer.errors import UsageError
from dtj_trainer.process.user_function import guarded
from dtj_trainer.training.exact_loss import GlobalBatchLoss
from dtj_trainer.training.loss_division import EXAMPLES, Parts, division
from dtj_trainer.training.metric_values import (
    check_added_up,
    check_sums_from_zero,
    flat,
    numbers,
    size_of,
    values_of,
)
from dtj_trainer.training.test_step import OwnTestStep

Tensor = Any


class CompiledObjective:
    """Loss and metrics of one model under one strategy. All that it counts is in sums, which the caller keeps."""

    def __init__(self, name: Name | str, model: Any, data: Source, *, batch: int | None, default: Any) -> None:
        """To be called in the strategy's scope, with the model's optimizer in place.

        Args:
            model: of Keras 3, built and compiled; its losses are replaced.
            data: that it learns from.
            batch: global batch size; None: whatever each batch has, on one replica; only to evaluate.
            default: `DefaultMetric`, where the model was compiled without metrics.

        Raises:
            UsageError: the loss or a metric does not fit the data, or is not known to be right over several replicas.
        """
        self._name = name
        self._model = model
        self._batch = batch
        self._replicas = tf.distribute.get_strategy().num_replicas_in_sync
        compute = type(model).compute_loss
        self._compute = rewritten(compute) if overrides(model, "compute_loss") else compute
        self._divides = overrides(model, "compute_loss") and self._replicas > 1
        """Whether a loss of the model's own is divided over replicas: each then has whole batches, its own parts."""
        self._exact: list[GlobalBatchLoss] = []
        self._replace_losses()
        sample = next(iter(data.validation(batch=2)))
        # What a user's code raises here, it would raise in the midst of the first step.
        guarded(name, "computing its loss and metrics", lambda: keras3.build_by(model, unpacked(sample)))
        self._division = self._own_division(data) if self._divides else None
        self._outputs = self._output_names()
        self._default = default if default is not None and not self._compiled_metrics() else None
        self._variables = self._metric_variables()
        check_sums_from_zero(name, self._metrics())
        guarded(name, "computing its metrics", lambda: self._check_that_metrics_add_up(sample))
        self.test_step: OwnTestStep | None = None
        """The model's own, where it has one."""
        if overrides(model, "test_step"):
            with self.by_batch():
                self.test_step = guarded(name, "calling its test_step", lambda: OwnTestStep(name, model, sample))
        self.size = 2 + len(self._outputs) + (2 if self._default else 0) + size_of(self._variables)
        """How many sums there are."""

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What one replica's share of a batch adds to the loss of the global batch, and to the sums: [size]."""
        total = tf.cast(self._total(outputs, labels, weights, inputs), tf.float32)
        rows = tf.cast(tf.shape(tf.nest.flatten(inputs)[0])[0], tf.float32)
        batch = rows if self._batch is None else tf.constant(self._batch, tf.float32)
        sums = [total * batch, rows]
        if self._outputs:
            sums += [tf.cast(exact.value, tf.float32) * batch for exact in self._exact]
        if self._default:
            sums += self._default.sums(labels, outputs, self._exact[0].mask)
        gained = flat(self._gained(outputs, labels, weights, inputs))
        return total, tf.stop_gradient(tf.concat([tf.stack(sums), *gained], axis=0))

    @contextmanager
    def by_batch(self) -> Iterator[None]:
        """While a graph is made in here, `loss` evaluates: each replica has whole batches, of any size."""
        batch, self._batch = self._batch, None
        try:
            yield
        finally:
            self._batch = batch

    def means(self, sums: Any) -> Mapping[str, float]:
        """The metrics by name, `loss` first, of sums over all replicas and any number of steps."""
        sums = np.asarray(sums, np.float64)
        examples = float(sums[1]) or math.nan
        found = {"loss": float(sums[0]) / examples}
        at = 2
        for name in self._outputs:
            found[name] = float(sums[at]) / examples
            at += 1
        if self._default:
            found[self._default.name] = float(sums[at]) / (float(sums[at + 1]) or math.nan)
            at += 2
        return self._results(values_of(sums[at:], self._variables)) | found

    def _total(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> Tensor:
        training = keras3.compute_loss_arguments(self._model, training=self._batch is not None)
        if self._divides:
            with keras3.as_on_one_replica():
                total = self._compute(self._model, inputs, labels, outputs, weights, **training)
            if self._batch is None or self._division is Parts.SUM:
                return total
            return total * (tf.cast(tf.shape(tf.nest.flatten(inputs)[0])[0], total.dtype) / self._batch)
        total = self._compute(self._model, inputs, labels, outputs, weights, **training)
        if self._replicas > 1 and (penalties := self._model.losses):
            # Keras divides them by the number of replicas. Those of activations are means over a replica's examples.
            whole = tf.add_n([tf.reduce_sum(tf.cast(one, total.dtype)) for one in penalties])
            rows = tf.cast(tf.shape(tf.nest.flatten(inputs)[0])[0], total.dtype)
            total += whole * ((1 if self._batch is None else rows / self._batch) - 1 / self._replicas)
        return total

    def _replace_losses(self) -> None:
        def exact(loss: Any) -> Any:
            if loss is None:
                return None
            self._exact.append(
                GlobalBatchLoss(str(self._name), loss, batch=lambda: None if self._divides else self._batch)
            )
            return self._exact[-1]

        model = self._model
        before = keras3.losses_of(model)
        if before is None:
            return
        losses, weights = keras3.given_losses(before)
        if not keras.tree.is_nested(losses):
            # One loss for all outputs: each needs its own.
            one, outputs = losses, _shape_of_outputs(model)
            losses = keras.tree.map_structure(lambda _: one, outputs)
            if weights is not None and not keras.tree.is_nested(weights):
                factor = weights
                weights = keras.tree.map_structure(lambda _: factor, outputs)
        keras3.replace_losses(model, keras.tree.map_structure(exact, losses), weights)

    def _own_division(self, data: Source) -> Parts:
        """How the model's own compute_loss divides.

        Raises:
            UsageError: it does not.
        """
        model = self._model
        examples = unpacked(next(iter(data.validation(batch=EXAMPLES))))
        training = keras3.compute_loss_arguments(model, training=True)

        def compute(inputs: Any, labels: Any, outputs: Any, weights: Any) -> Any:
            return self._compute(model, inputs, labels, outputs, weights, **training)

        found: Parts = guarded(self._name, "calling its compute_loss", lambda: division(model, compute, examples))
        if found is Parts.NONE:
            raise UsageError(
                f"{self._name}: {type(model).__name__}.compute_loss is not known to be right over {self._replicas} "
                "replicas, since it is neither the mean nor the sum over the examples of a batch; make it so, compile "
                "the model with a loss instead, or use strategy OneDevice"
            )
        return found

    def _output_names(self) -> list[str]:
        """Of the losses of the outputs, where there are several."""
        if len(self._exact) < 2:
            return []
        return [f"{loss.name}_loss" for loss in keras3.single_losses(self._model)]

    def _compiled_metrics(self) -> bool:
        compiled = keras3.metrics_of(self._model)
        return bool(compiled is not None and compiled.metrics) or overrides(self._model, "compute_metrics")

    def _metrics(self) -> list[Any]:
        if not self._compiled_metrics():
            return []
        if overrides(self._model, "compute_metrics"):
            own = [keras3.loss_tracker(self._model), *keras3.losses_of(self._model).metrics]
            return [metric for metric in self._model.metrics if all(metric is not one for one in own)]
        return list(keras3.metrics_of(self._model).metrics)

    def not_shown(self) -> list[str]:
        """The names of metrics that layers update when they are called, which nobody adds up."""
        model = self._model
        known = [keras3.loss_tracker(model), keras3.metrics_of(model), *self._metrics()]
        losses = keras3.losses_of(model)
        known += [] if losses is None else losses.metrics
        return [metric.name for metric in model.metrics if all(metric is not one for one in known)]

    def _metric_variables(self) -> list[Any]:
        return [variable for metric in self._metrics() for variable in metric.variables]

    def _check_that_metrics_add_up(self, sample: Any) -> None:
        """That a metric of a user's gains the same from the same examples, whatever it has seen before."""
        if not self._variables:
            return
        inputs, labels, weights = unpacked(sample)
        here = [(variable, tf.convert_to_tensor(variable.value)) for variable in self._model.variables]
        with keras.StatelessScope(state_mapping=here):
            outputs = self._model(inputs, **keras3.call_arguments(self._model, training=False))
        once = self._gained(outputs, labels, weights, inputs)
        twice = self._gained(outputs, labels, weights, inputs, before=once)
        at = 0
        for metric in self._metrics():
            part = slice(at, at := at + len(metric.variables))
            check_added_up(self._name, metric, once[part], twice[part])

    def _gained(
        self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor, *, before: list[Tensor] | None = None
    ) -> list[Tensor]:
        """What each variable of the metrics is after these examples.

        Args:
            before: what it was; None: zero.
        """
        if not self._variables:
            return []
        model = self._model
        before = before or [tf.zeros(variable.shape, variable.dtype) for variable in self._variables]
        with keras.StatelessScope(state_mapping=list(zip(self._variables, before, strict=True))) as scope:
            if overrides(model, "compute_metrics"):
                type(model).compute_metrics(model, inputs, labels, outputs, sample_weight=weights)
            else:
                keras3.metrics_of(model).update_state(labels, outputs, weights)
            return [scope.get_current_value(variable) for variable in self._variables]

    def _results(self, values: list[Tensor]) -> dict[str, float]:
        if not values:
            return {}
        with keras.StatelessScope(state_mapping=list(zip(self._variables, values, strict=True))):
            if overrides(self._model, "compute_metrics"):
                results = {metric.name: metric.result() for metric in self._metrics()}
            else:
                results = keras3.metrics_of(self._model).result()
        return numbers(results)


class DefaultMetric:
    """What is shown of a model that was compiled without metrics: its accuracy, or its mean absolute error."""

    def __init__(self, name: str, *, threshold: float, binary: bool) -> None:
        self.name = name
        self._threshold = threshold
        self._binary = binary

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Of each example, by position where there are positions; float32.

        Args:
            labels: [batch, ...] or [batch, ..., 1] as numbers of classes, or as the outputs.
            outputs: [batch, ..., units].
        """
        by_unit = self.name != "accuracy" or self._binary or outputs.shape[-1] == 1
        if by_unit and labels.shape.rank == outputs.shape.rank - 1:
            labels = labels[..., tf.newaxis]
        if self.name != "accuracy":
            found = keras.losses.mean_absolute_error(labels, outputs)
        elif by_unit:
            yes = tf.cast(labels, tf.float32) > 0.5
            found = keras.metrics.binary_accuracy(yes, outputs, threshold=self._threshold)
        elif labels.shape.rank < outputs.shape.rank or labels.shape[-1] == 1:
            found = keras.metrics.sparse_categorical_accuracy(labels, outputs)
        else:
            found = keras.metrics.categorical_accuracy(labels, outputs)
        return tf.cast(found, tf.float32)

    def sums(self, labels: Tensor, outputs: Tensor, mask: Tensor) -> list[Tensor]:
        """The sum over all that count, and their number."""
        values = self.values(tf.nest.flatten(labels)[0], tf.nest.flatten(outputs)[0])
        counts = tf.ones_like(values) if mask is None else tf.cast(mask, tf.float32)
        return [tf.reduce_sum(values * counts), tf.reduce_sum(counts)]


def unpacked(examples: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels and the weights of the examples, which may be None."""
    inputs, labels, *weights = examples
    return inputs, labels, weights[0] if weights else None


def overrides(model: Any, method: str) -> bool:
    """Whether a method of the model is the user's own."""
    found = getattr(type(model), method, None)
    module: str = getattr(found, "__module__", "")
    return not module.startswith(("keras.", "tf_keras."))


def _shape_of_outputs(model: Any) -> Any:
    """The structure of the outputs of a model, with anything in it."""
    names = getattr(model, "output_names", None) or []
    outputs = keras3.structure_of_outputs(model)
    if outputs is not None:
        return keras.tree.map_structure(lambda _: 0, outputs)
    return [0] * len(names) if len(names) > 1 else 0
