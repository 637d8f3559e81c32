"""A loss of Keras' that is exact over a global batch, whatever share of it a replica has. Imports TensorFlow.

Keras divides the sum over a replica's examples by their number, and then by the number of replicas. That is right if
all replicas have the same number, and wrong if a mask, an ignored class or weights make the numbers differ. Here the
sum is divided by the number over all replicas.
"""

import threading
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.errors import UsageError
from dtj_trainer.training.loss_division import Parts, loss_of_parts

Tensor = Any
_BY_WEIGHT = "mean_with_sample_weight"


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


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda value: tf.cast(value, dtype)


def _both(one: Tensor, other: Tensor) -> Tensor:
    if one is None or other is None:
        return other if one is None else one
    return tf.cast(one, tf.bool) & tf.cast(other, tf.bool)
