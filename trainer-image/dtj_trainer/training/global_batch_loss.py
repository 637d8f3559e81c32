"""One loss of a model, exact over the global batch on any number of replicas. Imports TensorFlow."""

import inspect
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.errors import UsageError
from dtj_trainer.training.loss_division import Parts, loss_of_parts

Tensor = Any
_BY_WEIGHT = "mean_with_sample_weight"


_COMPARING = ("circle", "dice", "tversky")
"""Keras' losses that are not of single examples."""


def by_example(function: Any, options: Mapping[str, Any], outputs: Any = None) -> bool:
    """Whether a function is one of either Keras that gives each example a value, of this example alone.

    Keras' functions reduce an axis, the last one unless `options` name another. It may be that of the examples.

    Args:
        options: what it is called with besides labels and outputs.
        outputs: what it is called with; None: not known, and taken to have more axes than that of the examples.
    """
    axes = 2 if outputs is None else len(keras.tree.flatten(outputs)[0].shape)
    of_keras = inspect.isfunction(function) and function.__module__.startswith(("keras.", "tf_keras."))
    return of_keras and axes > 1 and function.__name__ not in _COMPARING and options.get("axis", -1) == -1


def gives_each(loss: Any, outputs: Any = None) -> bool:
    """The same of a Loss of Keras 3."""
    return by_example(keras3.function_of_loss(loss), keras3.options_of_loss(loss), outputs)


class GlobalBatchLoss(keras.losses.Loss):  # type: ignore[misc]
    """What one loss gives for a replica's share of a batch; a Loss to compile the model with."""

    def __init__(self, model: str, loss: Any, *, batch: Callable[[], int | None], whole: Callable[[], Any]) -> None:
        """Args:
        model: its name, for a refusal.
        loss: a name, a function, a Loss; None for an output without one.
        batch: gives the global batch size; None: each replica has whole batches, of any size.
        whole: gives what this replica gathers by in this step; None outside of a step of several replicas.
        """
        name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", None)
        super().__init__(name=name or type(loss).__name__, reduction="sum")
        self._model = model
        self._batch = batch
        self._whole = whole
        self._loss = loss
        self.parts = Parts.NONE
        """How it divides over replicas."""
        self.is_own = False
        """Whether it is a loss of the user's, and was tried."""
        self.judges = False
        """Whether a call finds this out, and computes nothing."""
        self.judged: Any = None
        """The labels, outputs and weights that this was found out by."""
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
        loss = keras3.loss_of(self._loss, y_true, y_pred, rewrite=rewritten)
        if self.judges:
            self.judged = (y_true, y_pred, sample_weight)
            self.parts = self._of_parts(loss, *self.judged)
            return tf.zeros(())
        self._last.mask = None
        whole = None if self._batch() is None else self._whole()
        if whole is None:
            value = self._by_keras(loss, y_true, y_pred, sample_weight)
        elif self.parts is Parts.NONE:
            value = whole.part(self._by_keras(loss, *whole.gathered((y_true, y_pred, sample_weight))))
            self._last.mask = keras3.mask_of(y_pred)
        else:
            value = self._of_share(loss, y_true, y_pred, sample_weight)
        self._last.value = tf.reduce_mean(value)
        return value

    def _by_keras(self, loss: Any, labels: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        """What Keras computes on one replica."""
        with keras3.as_on_one_replica():
            if reduces_by_itself(loss):
                return tf.convert_to_tensor(loss(labels, outputs, weights))
            call = rewritten(loss.call)

            def noting(labels: Tensor, outputs_: Tensor) -> Tensor:
                values = call(labels, outputs_)
                self._check(labels, outputs_, values)
                self._last.mask = _both(keras3.mask_of(outputs), keras3.mask_of(values))
                return values

            as_keras = SimpleNamespace(name=loss.name, dtype=loss.dtype, reduction=loss.reduction, call=noting)
            return keras.losses.Loss.__call__(as_keras, labels, outputs, weights)

    def _of_share(self, loss: Any, labels: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        """What a loss that divides gives for a replica's examples."""
        values, mask = _values(loss, labels, outputs)
        self._last.mask = mask
        self._check(labels, outputs, values)
        if self.parts in (Parts.EACH, Parts.VALUES):
            return self._reduced(values, mask, weights, loss.reduction)
        if self.parts is Parts.SUM:
            return values
        rows = tf.shape(tf.nest.flatten(outputs)[0])[0]
        return values * tf.cast(rows, values.dtype) / tf.cast(self._batch(), values.dtype)

    def _check(self, labels: Tensor, outputs: Tensor, values: Tensor) -> None:
        if tf.is_tensor(labels) and tf.is_tensor(outputs) and values.shape.rank == 2:
            ranks = (labels.shape.rank, outputs.shape.rank, outputs.shape[-1])
            if ranks == (1, 2, 1) and values.shape[-1] != 1:
                raise UsageError(
                    f"{self._model}: its loss combines labels of shape [batch] with outputs of shape [batch, 1], which "
                    "gives [batch, batch]; return labels of shape [1] for each example"
                )

    def _of_parts(self, loss: Any, labels: Tensor, outputs: Tensor, weights: Tensor) -> Parts:
        """How the loss divides over replicas.

        Raises:
            Exception: what it raises for these.
        """
        if reduces_by_itself(loss) or loss.reduction in (None, "none"):
            return Parts.NONE
        given = keras3.loss_of(self._loss, labels, outputs, rewrite=lambda function: function)
        if gives_each(given, outputs):
            return Parts.EACH
        _, mask = _values(loss, labels, outputs)
        call = rewritten(loss.call)
        with keras3.as_on_one_replica():
            before = self.parts if self.is_own and self.parts is not Parts.NONE else None
            found = loss_of_parts(call, typed(loss, labels), typed(loss, outputs), known=before)
        self.is_own = True
        # Keras multiplies what is no value of an example by the weights of all.
        counted = mask is None and weights is None
        return found if counted or found is Parts.EACH else Parts.NONE

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
            return tf.math.divide_no_nan(total, over_replicas(tf.reduce_sum(weights)))
        if floats is not None:
            elements = tf.reduce_sum(floats) * count / tf.cast(tf.size(floats), values.dtype)
            return tf.math.divide_no_nan(total, over_replicas(elements))
        batch = self._batch()
        if self.parts is Parts.VALUES:
            return tf.math.divide_no_nan(total, over_replicas(count))
        # All examples are of one shape: what the global batch has needs no question to the other replicas.
        each = tf.math.divide_no_nan(count, tf.cast(tf.shape(values)[0], values.dtype))
        return tf.math.divide_no_nan(total, each * batch)


def over_replicas(value: Tensor) -> Tensor:
    """The sum over the replicas of a value that has no gradient."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(value))


def reduces_by_itself(loss: Any) -> bool:
    return type(loss).__call__ is not keras.losses.Loss.__call__


def typed(loss: Any, values: Any) -> Any:
    """These, of the type that a loss computes in, with their mask."""
    mask = keras3.mask_of(values)
    values = keras.tree.map_structure(lambda one: tf.cast(one, loss.dtype), values)
    if mask is not None:
        keras3.put_mask(values, mask)
    return values


def _values(loss: Any, labels: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """What a loss gives for these, not reduced, and which of it counts; None: all."""
    with keras3.as_on_one_replica():  # a loss may be made of others, which Keras would divide by the replicas
        values = rewritten(loss.call)(typed(loss, labels), typed(loss, outputs))
    mask = _both(keras3.mask_of(outputs), keras3.mask_of(values))
    return (values if values.dtype.is_floating else tf.cast(values, tf.float32)), mask


def _both(one: Tensor, other: Tensor) -> Tensor:
    if one is None or other is None:
        return other if one is None else one
    return tf.cast(one, tf.bool) & tf.cast(other, tf.bool)
