"""The loss and the metrics of a user's model as it was compiled, exact over the global batch. Imports TensorFlow.

Keras computes them: its `compute_loss` with masks, weights, several outputs and `loss_weights`, its metric objects.
Each Loss in it is replaced by one that is exact over the global batch: Keras divides the sum over a replica's examples
by their number, and then by the number of replicas, which is wrong if a mask, an ignored class or weights make the
numbers differ. Here the sum is divided by the number over all replicas. A loss that does not divide is computed of the
labels and outputs of all replicas, and so is a metric. A metric is updated from zero at each step, and the increase of
its variables is summed over steps and replicas; its result is computed from the sums. One replica runs Keras' losses.
"""

import math
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.utils import unpack_x_y_sample_weight

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import values_here
from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.examples_to_try import examples_to_try
from dtj_trainer.data.source import Source
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.distribution.gathering import Whole, bytes_of, described, is_static, once
from dtj_trainer.errors import UsageError
from dtj_trainer.process.user_function import guarded
from dtj_trainer.training.global_batch_loss import GlobalBatchLoss, over_replicas
from dtj_trainer.training.layers import added_times
from dtj_trainer.training.loss_division import EXAMPLES, ChangesModel, Parts, division, part_of
from dtj_trainer.training.metric_values import Join, MetricSums, numbers
from dtj_trainer.training.own_metrics import OwnMetrics
from dtj_trainer.training.test_step import OwnTestStep

Tensor = Any
LOOKS = (10, 100, 1000)
"""Steps after which a loss of the user's is tried again, on other examples and with the weights of then."""
_TRIED_BYTES = 64 * 2**20
"""Of outputs that losses are tried on, which takes several times as much."""


class CompiledObjective:
    """Loss and metrics of one model under one strategy. All that it counts is in sums, which the caller keeps."""

    def __init__(
        self,
        name: Name | str,
        model: Any,
        data: Source,
        *,
        batch: int | None,
        default: Any,
        added: Sequence[Parts] = (),
    ) -> None:
        """To be called in the strategy's scope, with the model's optimizer in place.

        Args:
            model: of Keras 3, built and compiled; its losses are replaced.
            data: that it learns from.
            batch: global batch size; None: whatever each batch has, on one replica; only to evaluate.
            default: `DefaultMetric`, where a model of one output was compiled without metrics.
            added: how each of the model's `losses` divides, where several replicas share it.

        Raises:
            UsageError: the loss or a metric does not fit the data, or is not known to be right over several replicas.
        """
        self._name = name
        self._model = model
        self._batch = batch
        self._strategy = tf.distribute.get_strategy()
        self._replicas = self._strategy.num_replicas_in_sync
        compute = type(model).compute_loss
        self._compute = rewritten(compute) if keras3.overrides(model, "compute_loss") else compute
        self._divides = keras3.overrides(model, "compute_loss") and self._replicas > 1
        """Whether a loss of the model's own is divided over replicas: its losses are those of whole batches."""
        # The replicas of a process are threads, which take turns wherever they meet.
        self._here = threading.local()
        sample = next(iter(data.validation(batch=2)))
        guarded(name, "calling the model", lambda: self._replace_losses(unpack_x_y_sample_weight(sample)[0]))
        # What a user's code raises here, it would raise in the midst of the first step.
        guarded(
            name,
            "computing its loss and metrics",
            lambda: keras3.build_by(model, unpack_x_y_sample_weight(sample)),
        )
        self._exact: list[GlobalBatchLoss] = [loss.loss for loss in keras3.single_losses(model)]
        """In the order of Keras' names of them; none where a loss of the model's own calls none."""
        self._division = Parts.NONE
        self._added = added
        """How the losses that layers add divide, in their order."""
        self._outputs = self._output_names()
        self._default = None if self._outputs or self._compiled_metrics() else default
        self.own_metrics: OwnMetrics | None = None
        """The model's own, where it has a `compute_metrics`."""
        self._variables: list[Any] = []
        self._metric_sums = guarded(name, "computing its metrics", lambda: self._sums_of_metrics(sample))
        self._of_all = [False] * len(self._variables)
        """Which of them need the examples of all replicas."""
        self._others: Any = None
        self._tried = slice(0, 0)
        self._looks: tuple[int, ...] = ()
        self.gathered: str | None = None
        """What is computed of the examples of all replicas, and what they send for it, as a line says it."""
        if self._replicas > 1 and batch is not None:
            self._divide(data, batch)
        self.test_step: OwnTestStep | None = None
        """The model's own, where it has one."""
        if keras3.overrides(model, "test_step"):
            with self.by_batch():
                self.test_step = guarded(name, "calling its test_step", lambda: OwnTestStep(name, model, sample))
        self._at = 2 + len(self._outputs) + (2 if self._default else 0)
        """Where the metrics begin among the sums."""
        self.size = self._at + self._metric_sums.size
        """How many sums there are."""

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What one replica's share of a batch adds to the loss of the global batch, and to the sums: [size]."""
        in_step = self._replicas > 1 and self._batch is not None
        self._here.whole = Whole(static=is_static(self._strategy)) if in_step else None
        total, shown, times = self._computed(outputs, labels, weights, inputs)
        rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        total, shown, examples = (tf.cast(one, tf.float32) for one in (total, shown, rows))
        batch = examples if self._batch is None else tf.constant(self._batch, tf.float32)
        sums = [shown * batch, examples]
        if self._outputs:
            sums += [tf.cast(exact.value, tf.float32) * tf.cast(times, tf.float32) * batch for exact in self._exact]
        mask = self._exact[0].mask if self._exact else None
        if self._default and self._gathers:
            of_all = self._default.sums(*self._here.whole.gathered((labels, outputs)), mask)
            sums += [once(one) for one in of_all]
        elif self._default:
            sums += self._default.sums(labels, outputs, mask)
        gained = self._metric_sums.parts(self._gained_over_replicas(outputs, labels, weights, inputs))
        return total, tf.stop_gradient(tf.concat([tf.stack(sums), *gained], axis=0))

    def joined(self, one: Any, other: Any) -> Any:
        """The sums of two calls of `loss`, or of several, as one."""
        return self._metric_sums.joined(one, other)

    def add_to(self, variable: Any, sums: Tensor) -> None:
        """Puts what `loss` gave into a variable that starts at zero, on this replica."""
        self._metric_sums.add_to(variable, sums)

    @property
    def _gathers(self) -> bool:
        """Whether the loss of a step is that of the model's own for the examples of all replicas."""
        return self._divides and self._batch is not None and self._division is Parts.NONE

    def _computed(
        self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        """What a replica adds to the loss that has the gradient, and to the one that is shown.

        Of a loss that is a vector, Keras takes the gradient of the sum, and shows the mean.

        Returns:
            These, and what the losses of single outputs are multiplied by.
        """
        whole = self._here.whole
        training = keras3.compute_loss_arguments(self._model, training=self._batch is not None)
        share = tf.cast(tf.shape(tf.nest.flatten(inputs)[0])[0], tf.float32) / (self._batch or 1)
        if self._gathers:
            inputs, labels, outputs, weights = whole.gathered((inputs, labels, outputs, weights))
        # In an evaluation, each replica has whole batches.
        alone = self._divides or self._batch is None
        with (
            keras3.as_on_one_replica() if alone else nullcontext(),
            keras3.changing_losses(partial(self._added_times, share)) if self._adds_up else nullcontext(),
        ):
            loss = tf.convert_to_tensor(self._compute(self._model, inputs, labels, outputs, weights, **training))
        total, shown = tf.reduce_sum(loss), tf.reduce_mean(loss)
        if whole is None:
            return total, shown, 1.0
        if self._gathers:
            return whole.part(total), whole.part(shown), 1 / self._replicas
        if self._divides:
            times = tf.cast(share, loss.dtype) if self._division is Parts.MEAN else 1.0
            total *= times
            return (
                total,
                total / over_replicas(tf.cast(tf.size(loss), loss.dtype)) if loss.shape.rank else total,
                times,
            )
        return total, shown, 1.0

    @property
    def _adds_up(self) -> bool:
        """Whether the losses that layers add are divided by the number of replicas in the end: by Keras, or by us."""
        in_step = self._replicas > 1 and self._batch is not None
        return in_step and (self._gathers or not self._divides)

    def _added_times(self, share: Tensor, losses: list[Tensor]) -> list[Tensor]:
        """Losses that layers of the model add for a replica's examples, so that their mean over the replicas is right.

        Args:
            share: of the examples of the batch that this replica has.
        """
        count = len(self._model.losses)
        if count != len(self._added):
            raise UsageError(
                f"{self._name}: its layers add {count} losses in a step, and added {len(self._added)} for the "
                "first examples; add the same in each call, or use strategy OneDevice"
            )
        replicas = self._replicas
        return added_times(self._model, losses, self._added, mean=share * replicas, sum_=replicas)

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
        found |= {name: float(value) / examples for name, value in zip(self._outputs, sums[2:], strict=False)}
        found = self._results(self._metric_sums.values(sums[self._at :]), found) | found
        if self._default:
            total, number = sums[self._at - 2 : self._at]
            found[self._default.name] = float(total) / (float(number) or math.nan)
        return found

    def _replace_losses(self, inputs: Any) -> None:
        def exact(loss: Any) -> Any:
            if loss is None:
                return None
            return GlobalBatchLoss(
                str(self._name), loss,
                batch=lambda: None if self._divides else self._batch,
                whole=lambda: getattr(self._here, "whole", None),
            )  # fmt: skip

        before = keras3.losses_of(self._model)
        if before is None:
            return
        losses, weights = keras3.given_losses(before)
        if not keras.tree.is_nested(losses):
            # One loss for all outputs: each needs its own.
            one, outputs = losses, self._evaluated(inputs)
            losses = keras.tree.map_structure(lambda _: one, outputs)
            if weights is not None and not keras.tree.is_nested(weights):
                factor = weights
                weights = keras.tree.map_structure(lambda _: factor, outputs)
        keras3.replace_losses(self._model, keras.tree.map_structure(exact, losses), weights)

    def _divide(self, data: Source, batch: int) -> None:
        """Finds out how the loss and the metrics divide over the replicas, by real examples.

        Raises:
            UsageError: they cannot.
        """
        # No more than a device of the training takes at once.
        size = min(EXAMPLES, max(2, batch // self._replicas))
        self._others = iter(examples_to_try(data, batch=size))
        inputs, labels, weights = unpack_x_y_sample_weight(next(self._others))
        outputs = self._evaluated(inputs)
        size = tf.nest.flatten(inputs)[0].shape[0]
        each = sum(map(bytes_of, keras.tree.flatten(outputs))) // size
        self._tried = slice(0, max(2, _TRIED_BYTES // max(each, 1)))
        size = min(size, self._tried.stop)
        inputs, labels, weights, outputs = part_of((inputs, labels, weights, outputs), self._tried)
        examples = inputs, labels, weights
        sent: dict[int, Any] = {}
        names: list[str] = []

        def gathers(name: str, values: Any) -> None:
            names.append(name)
            sent.update((id(one), one) for one in keras.tree.flatten(values) if one is not None)

        if self._divides:
            self._division = self._agreed(self._own_division(examples))
            if self._division is Parts.NONE:
                gathers("compute_loss", (inputs, labels, outputs, weights))
        elif self._exact:
            guarded(self._name, "calling its loss", lambda: self._judge_losses(labels, outputs, weights))
            for exact in self._exact:
                exact.parts = self._agreed(exact.parts)
                if exact.parts is Parts.NONE:
                    gathers(f"loss {exact.name}", exact.judged)
                exact.judged = None
        if self._division is not Parts.NONE or any(one.is_own and one.parts is not Parts.NONE for one in self._exact):
            self._looks = LOOKS
        guarded(self._name, "computing its metrics", lambda: self._judge_metrics(outputs, examples))
        at = 0
        for metric in self._metrics():
            if any(self._of_all[at : at + len(metric.variables)]):
                needed = inputs if self.own_metrics else None
                gathers(f"metric {metric.name}", (labels, outputs, weights, needed))
            at += len(metric.variables)
        if names and is_static(self._strategy) and batch % self._replicas:
            raise UsageError(
                f"{self._name}: {', '.join(names)} is computed of all examples of a batch together, which a TPU does "
                f"in {self._replicas} equal parts; give a --batch-size that {self._replicas} divides"
            )
        if names:
            total = sum(map(bytes_of, sent.values())) * batch // size
            self.gathered = described(f"{self._name}: {', '.join(names)}", total, replicas=self._replicas)

    def look_again(self, counter: Any) -> None:
        """Tries losses of the user's again when it is time; to be called by all tasks after the same steps.

        Args:
            counter: variable that holds the step that was done last.

        Raises:
            UsageError: a loss does not divide as it was found at the start.
        """
        if not self._looks or (step := int(counter.numpy())) < self._looks[0]:
            return
        due = [one for one in self._looks if one <= step]
        self._looks = self._looks[len(due) :]
        inputs, labels, weights = examples = part_of(unpack_x_y_sample_weight(next(self._others)), self._tried)
        if self._divides:
            if self._own_division(examples, known=self._division) is not self._division:
                raise self._wrong(f"{type(self._model).__name__}.compute_loss", self._division, step)
            return
        before = [exact.parts for exact in self._exact]
        outputs = self._evaluated(inputs)
        guarded(self._name, "calling its loss", lambda: self._judge_losses(labels, outputs, weights))
        for exact, parts in zip(self._exact, before, strict=True):
            exact.judged = None
            if exact.parts is not parts:
                raise self._wrong(f"its loss {exact.name}", parts, step)

    def _wrong(self, what: str, parts: Parts, step: int) -> UsageError:
        return UsageError(
            f"{self._name}: {what} was {_WAS[parts]} for the first examples, and is not for others of step {step}, so "
            f"{self._replicas} replicas have trained steps up to {step} wrongly; return one value for each example, 0 "
            "for those that do not count, or use strategy OneDevice, and train anew"
        )

    def _agreed(self, parts: Parts) -> Parts:
        """What all workers have found; NONE if they differ."""
        numbers = list(Parts)
        found = set(of_each_replica(self._strategy, numbers.index(parts)))
        return numbers[found.pop()] if len(found) == 1 else Parts.NONE

    def _evaluated(self, inputs: Any) -> Any:
        with keras.StatelessScope(state_mapping=values_here(self._model.variables)):
            return self._model(inputs, **keras3.call_arguments(self._model, training=False))

    def _own_division(self, examples: tuple[Any, Any, Any], *, known: Parts | None = None) -> Parts:
        """How the model's own compute_loss divides; known: as it was found before.

        Raises:
            UsageError: it sets variables of the model.
        """
        model = self._model
        training = keras3.compute_loss_arguments(model, training=True)

        def compute(inputs: Any, labels: Any, outputs: Any, weights: Any) -> Any:
            return self._compute(model, inputs, labels, outputs, weights, **training)

        def divided() -> Parts:
            try:
                return division(model, compute, examples, known=known)
            except ChangesModel:
                raise UsageError(
                    f"{self._name}: {type(model).__name__}.compute_loss sets variables of the model, and each of "
                    f"{self._replicas} replicas would set its own; set them in a layer, or use strategy OneDevice"
                ) from None

        found: Parts = guarded(self._name, "calling its compute_loss", divided)
        return found

    def _judge_losses(self, labels: Any, outputs: Any, weights: Any) -> None:
        losses = keras3.losses_of(self._model)
        for exact in self._exact:
            exact.judges = True
        try:
            # In such a scope, Keras' means of single losses stay as they are.
            with keras.StatelessScope():
                losses(labels, outputs, weights)
        finally:
            for exact in self._exact:
                exact.judges = False

    def _judge_metrics(self, outputs: Any, examples: tuple[Any, Any, Any]) -> None:
        inputs, labels, weights = examples
        first, rest = slice(0, 1), slice(1, None)
        given = (outputs, labels, weights, inputs)
        whole = self._gained(*given)
        parts = [self._gained(*part_of(given, part)) for part in (first, rest)]
        at = 0
        for metric in self._metrics():
            end = at + len(metric.variables)
            found = zip(self._metric_sums.joins[at:end], *(gained[at:end] for gained in (whole, *parts)), strict=True)
            of_all = not all(join.is_of(*values) for join, *values in found)
            self._of_all[at:end] = [of_all] * (end - at)
            at = end
        agreed = of_each_replica(self._strategy, zlib.crc32(bytes(self._of_all)))
        if len(set(agreed)) > 1 or (any(self._of_all) and self.own_metrics):
            self._of_all = [True] * len(self._of_all)

    def _output_names(self) -> list[str]:
        """Of the losses of the outputs, where there are several."""
        if len(self._exact) < 2:
            return []
        return [f"{loss.name}_loss" for loss in keras3.single_losses(self._model)]

    def _compiled_metrics(self) -> bool:
        compiled = keras3.metrics_of(self._model)
        return bool(compiled is not None and compiled.metrics) or keras3.overrides(self._model, "compute_metrics")

    def _metrics(self) -> list[Any]:
        if self.own_metrics:
            return self.own_metrics.metrics
        return list(keras3.metrics_of(self._model).metrics) if self._compiled_metrics() else []

    def not_shown(self) -> list[str]:
        """The names of metrics that layers update when they are called, which nobody adds up."""
        model = self._model
        known = [*keras3.updated_by_keras(model), *self._metrics()]
        return [metric.name for metric in model.metrics if all(metric is not one for one in known)]

    def _sums_of_metrics(self, sample: Any) -> MetricSums:
        inputs, labels, weights = unpack_x_y_sample_weight(sample)
        given = self._evaluated(inputs), labels, weights, inputs
        if keras3.overrides(self._model, "compute_metrics"):
            self.own_metrics = OwnMetrics(self._name, self._model, given)

        def after(before: Sequence[Tensor], part: slice) -> list[Tensor]:
            return self._gained(*part_of(given, part), before=before)

        owned = [(metric, variable) for metric in self._metrics() for variable in metric.variables]
        self._variables = [variable for _, variable in owned]
        return MetricSums(self._name, owned, after)

    def _gained_over_replicas(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> list[Tensor]:
        """What this replica adds to each variable of the metrics in a step."""
        whole = self._here.whole
        if whole is None or not any(self._of_all):
            return self._gained(outputs, labels, weights, inputs)
        needed = inputs if self.own_metrics else None
        every = self._gained(*whole.gathered((outputs, labels, weights, needed)))
        joins = self._metric_sums.joins
        every = [once(one) if join is Join.SUM else one for join, one in zip(joins, every, strict=True)]
        if all(self._of_all):
            return every
        here = self._gained(outputs, labels, weights, inputs)
        return [one if of_all else other for one, other, of_all in zip(every, here, self._of_all, strict=True)]

    def _gained(
        self,
        outputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        inputs: Tensor,
        *,
        before: Sequence[Tensor] | None = None,
    ) -> list[Tensor]:
        """What each variable of the metrics is after these examples.

        Args:
            before: what it was; None: as it is before any.
        """
        if not self._variables:
            return []
        before = self._metric_sums.start if before is None else before
        with keras.StatelessScope(state_mapping=list(zip(self._variables, before, strict=True))) as scope:
            if self.own_metrics:
                self.own_metrics.update(outputs, labels, weights, inputs)
            else:
                keras3.metrics_of(self._model).update_state(labels, outputs, weights)
            return [scope.get_current_value(variable) for variable in self._variables]

    def _results(self, values: list[Tensor], losses: Mapping[str, float]) -> dict[str, float]:
        state = list(zip(self._variables, values, strict=True))
        if self.own_metrics:
            return self.own_metrics.results(state, losses)
        if not state:
            return {}
        with keras.StatelessScope(state_mapping=state):
            # In here: a metric may return a variable of its own.
            return numbers(keras3.metrics_of(self._model).result())


_WAS = {
    Parts.EACH: "of single examples",
    Parts.VALUES: "of single examples",
    Parts.MEAN: "the mean over the examples",
    Parts.SUM: "the sum over the examples",
}
