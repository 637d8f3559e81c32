"""The loss and the metrics of a user's model as it was compiled, exact over the global batch. Imports TensorFlow.

Keras computes them: its `compute_loss` with masks, weights, several outputs and `loss_weights`, its metric objects.
Each Loss in it is replaced by one that is exact over the global batch: Keras divides the sum over a replica's examples
by their number, and then by the number of replicas, which is wrong if a mask, an ignored class or weights make the
numbers differ. Here the sum is divided by the number over all replicas. A metric is updated from zero at each step, and
the increase of its variables is summed over steps, replicas and workers; its result is computed from the sums.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
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
from dtj_trainer.training.loss_division import EXAMPLES, Parts, division, loss_of_parts
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
_BY_WEIGHT = "mean_with_sample_weight"


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
        self._variables = [variable for metric in self._metrics() for variable in metric.variables]
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
        training = keras3.compute_loss_arguments(self._model, training=self._batch is not None)
        with keras3.as_on_one_replica() if self._divides else nullcontext():
            total = tf.convert_to_tensor(self._compute(self._model, inputs, labels, outputs, weights, **training))
        rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        share = 1 if self._batch is None else tf.cast(rows, total.dtype) / self._batch
        if self._divides:
            total *= 1 if self._division is Parts.SUM else share
        elif self._replicas > 1 and (penalties := self._model.losses):
            # Keras divides them by the number of replicas. Those of activations are means over a replica's examples.
            whole = tf.add_n([tf.reduce_sum(tf.cast(one, total.dtype)) for one in penalties])
            total += whole * (share - 1 / self._replicas)
        total, examples = tf.cast(total, tf.float32), tf.cast(rows, tf.float32)
        batch = examples if self._batch is None else tf.constant(self._batch, tf.float32)
        sums = [total * batch, examples]
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


class GlobalBatchLoss(keras.losses.Loss):  # type: ignore[misc]
    """What one loss gives for a replica's share of a batch; a Loss to compile the model with."""

    def __init__(self, model: str, loss: Any, *, batch: Callable[[], int | None]) -> None:
        """Args:
        model: its name, for a refusal.
        loss: a name, a function, a Loss; None for an output without one.
        batch: gives the global batch size; None: each replica has whole batches, of any size.
        """
        name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", None)
        super().__init__(name=name or type(loss).__name__, reduction="sum")
        self._model = model
        self._batch = batch
        self._loss = loss
        self._parts: Parts | None = None
        # The replicas of a process are threads, which take turns wherever they meet.
        self._last = threading.local()

    @property
    def mask(self) -> Tensor:
        """Which elements of the last examples of this replica count; None: all."""
        return getattr(self._last, "mask", None)

    @property
    def value(self) -> Tensor:
        """What this loss was for them, before it is weighted."""
        return self._last.value

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Tensor:
        """What these examples add to the loss over the global batch."""
        labels, outputs, weights = y_true, y_pred, sample_weight
        loss = keras3.loss_of(self._loss, labels, outputs, rewrite=rewritten)
        if loss.reduction in (None, "none"):
            raise UsageError(
                f"{self._model}: its loss {loss.name} is compiled with reduction=None; use another reduction"
            )
        if type(loss).__call__ is not keras.losses.Loss.__call__:
            if tf.distribute.get_strategy().num_replicas_in_sync > 1:
                raise UsageError(
                    f"{self._model}: {type(loss).__name__}.__call__ reduces its loss by itself, which is not known to "
                    "be right over several replicas; define call(y_true, y_pred) instead, one loss for each example"
                )
            self._last.value = tf.cast(loss(labels, outputs, weights), tf.float32)
            return self._last.value
        before = keras3.mask_of(outputs)
        labels, outputs = (keras.tree.map_structure(_cast(loss.dtype), one) for one in (labels, outputs))
        if before is not None:
            keras3.put_mask(outputs, before)
        call = rewritten(loss.call)
        with keras3.as_on_one_replica():  # a loss may be made of others, which Keras would divide by the replicas
            values = call(labels, outputs)
        self._check(labels, outputs, values)
        mask = _both(before, keras3.mask_of(values))
        values = values if values.dtype.is_floating else tf.cast(values, tf.float32)
        if self._parts is None:
            self._parts = self._of_parts(call, labels, outputs)
        if values.shape.rank == 0:
            value = self._of_one_number(values, outputs, counted=mask is None and weights is None)
        else:
            value = self._reduced(values, mask, weights, loss.reduction)
        self._last.mask, self._last.value = mask, value
        return value

    def _check(self, labels: Tensor, outputs: Tensor, values: Tensor) -> None:
        if tf.is_tensor(labels) and tf.is_tensor(outputs) and values.shape.rank == 2:
            ranks = (labels.shape.rank, outputs.shape.rank, outputs.shape[-1])
            if ranks == (1, 2, 1) and values.shape[-1] != 1:
                raise UsageError(
                    f"{self._model}: its loss combines labels of shape [batch] with outputs of shape [batch, 1], which "
                    "gives [batch, batch]; return labels of shape [1] for each example"
                )

    def _of_parts(self, call: Callable[[Any, Any], Any], labels: Tensor, outputs: Tensor) -> Parts:
        """How the loss divides over replicas; with one replica, nothing has to be divided."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas == 1:
            return Parts.MEAN
        found = loss_of_parts(call, labels, outputs)
        if found is Parts.NONE:
            raise UsageError(
                f"{self._model}: its loss is neither the mean nor the sum of what the examples give each by itself, so "
                f"{replicas} replicas cannot divide it; return one value for each example, such as "
                "Dice(axis=(1, 2, 3)), or use strategy OneDevice"
            )
        return found or Parts.EACH

    def _of_one_number(self, value: Tensor, outputs: Tensor, *, counted: bool) -> Tensor:
        """A loss that is one number for a batch.

        Args:
            counted: whether each example counts, and counts the same.
        """
        if not counted or self._parts is Parts.EACH:
            raise UsageError(
                f"{self._model}: its loss gives one number for a whole batch; return one for each example, "
                "so that weights, masks and replicas can divide it"
            )
        batch = self._batch()
        if batch is None or self._parts is Parts.SUM or tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return value
        rows = tf.shape(tf.nest.flatten(outputs)[0])[0]
        return value * tf.cast(rows, value.dtype) / tf.cast(batch, value.dtype)

    def _reduced(self, values: Tensor, mask: Tensor, weights: Tensor, reduction: str) -> Tensor:
        count = tf.cast(tf.size(values), values.dtype)
        floats = None if mask is None else tf.cast(mask, values.dtype)
        if weights is not None:
            weights = tf.cast(weights, values.dtype)
            if floats is not None:
                floats, weights = keras3.of_same_rank(floats, weights)
                weights *= floats
        else:
            weights = floats
        if weights is not None:
            values, weights = keras3.of_same_rank(values, weights)
            values *= weights
        total = tf.reduce_sum(values)
        if reduction == "sum":
            return total
        if reduction == _BY_WEIGHT and weights is not None:
            return tf.math.divide_no_nan(total, self._over_replicas(tf.reduce_sum(weights)))
        if floats is not None:
            elements = tf.reduce_sum(floats) * count / tf.cast(tf.size(floats), values.dtype)
            return tf.math.divide_no_nan(total, self._over_replicas(elements))
        batch = self._batch()
        if batch is None:
            return tf.math.divide_no_nan(total, count)
        # All examples are of one shape: what the global batch has needs no question to the other replicas.
        each = tf.math.divide_no_nan(count, tf.cast(tf.shape(values)[0], values.dtype))
        return tf.math.divide_no_nan(total, each * batch)

    def _over_replicas(self, value: Tensor) -> Tensor:
        value = tf.stop_gradient(value)
        context = tf.distribute.get_replica_context()
        if self._batch() is None or context is None or context.num_replicas_in_sync == 1:
            return value
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


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


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda value: tf.cast(value, dtype)


def _both(one: Tensor, other: Tensor) -> Tensor:
    if one is None or other is None:
        return other if one is None else one
    return tf.cast(one, tf.bool) & tf.cast(other, tf.bool)
