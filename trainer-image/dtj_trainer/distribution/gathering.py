"""What the replicas of a step have, gathered: labels and outputs of the whole batch, for a loss that needs all of them.

Each replica computes the same loss of all examples. Only a replica's own rows have a gradient, so the sum of the
replicas' gradients is that of one device with the whole batch, whatever the loss leaves out or compares.

What a layer gives for all examples, each replica uses for its own: there, a row's gradient is the sum of those that the
replicas have for it. Imports TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.errors import UsageError

_GATHERED = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)
"""What TensorFlow gathers and sums of several workers; other numbers are converted there and back."""

MOST_GATHERED = 64 * 10**6
"""Bytes that the replicas may send each other at a step."""


def described(what: str, size: int, *, replicas: int, of: str = "labels and outputs") -> str:
    """How much is sent for what is computed of the examples of all replicas, as a line says it.

    Args:
        what: is computed so.
        size: of labels, outputs and all else that is gathered for it, in bytes, of a batch of all replicas.
        of: what that is.

    Raises:
        UsageError: it is too much.
    """
    if size > MOST_GATHERED:
        raise UsageError(
            f"{what} is computed of all examples of a batch together, and {replicas} replicas would send each other "
            f"{size / 1e6:.0f} MB of {of} a step, which is more than {MOST_GATHERED / 1e6:.0f} MB; "
            "return one value for each example, take a smaller batch, or train on one device"
        )
    told = f"{size / 1e3:.3g} kB" if size < 10**6 else f"{size / 1e6:.3g} MB"
    return f"{what} gathered: {told} a step"


class Whole:
    """The whole batch, as one replica of a step sees it."""

    def __init__(self, present: Any = None, *, static: bool = False, of_layer: bool = False) -> None:
        """To be made in a replica's step.

        Args:
            present: 0 if this replica's example only stands in for none, else 1; None where this cannot be.
            static: whether all replicas have as many rows, and XLA compiles the step: see `is_static`.
            of_layer: whether a replica uses only its own rows of what is computed.
        """
        self._context = tf.distribute.get_replica_context()
        self._present = present
        self._static = static
        self._of_layer = of_layer
        self._counted: Any = None
        self._known: dict[int, tuple[Any, Any]] = {}

    def gathered(self, values: Any) -> Any:
        """A structure of tensors with the rows of all replicas, in their order; None stays None.

        A tensor is gathered once. Masks go with the tensors. A gradient flows to this replica's own rows: times the
        number of replicas that have examples, which `part` divides by; or, of a layer, summed over the replicas.

        Raises:
            UsageError: something of it cannot be gathered: texts, sparse tensors, and numbers without rows.
        """

        def whole(one: Any) -> Any:
            # What is kept is not gone, so that no other has its number.
            if id(one) not in self._known:
                self._known[id(one)] = one, None if one is None else self._rows(one)
            return self._known[id(one)][1]

        return keras.tree.map_structure(whole, values)

    def part(self, loss: Any) -> Any:
        """What this replica adds to a sum over the replicas that is to be this loss, which each has computed."""
        part = loss / tf.cast(self.replicas, loss.dtype)
        return part if self._present is None else part * tf.cast(self._present, loss.dtype)

    @property
    def replicas(self) -> Any:
        """That have examples."""
        if self._counted is None:
            alone, here = self._context.num_replicas_in_sync, self._present
            self._counted = tf.constant(float(alone)) if here is None else self._summed(tf.cast(here, tf.float32))
        return self._counted

    def own(self, outputs: Any, rows: Any) -> Any:
        """This replica's rows of what was computed of those of all: any, where its example only stands in.

        Args:
            outputs: a structure of tensors with the rows of all replicas, in their order, and other values.
            rows: how many this replica has.
        """
        before = self._before(self._own(rows))
        first = before if self._present is None else tf.where(self._present > 0, before, 0)

        def of(one: Any) -> Any:
            return tf.ensure_shape(one[first : first + rows], [None, *one.shape[1:]])

        return of_tensors(of, outputs)

    def _summed(self, value: Any) -> Any:
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    def _rows(self, value: Any) -> Any:
        if isinstance(value, tf.SparseTensor):
            raise UsageError(
                f"a loss or a metric of all {self._context.num_replicas_in_sync} replicas cannot be computed of sparse "
                "tensors; make them dense in the data, with tf.sparse.to_dense, or train on one device"
            )
        if isinstance(value, tf.RaggedTensor):
            if self._static:
                raise UsageError(
                    f"a loss or a metric of all {self._context.num_replicas_in_sync} replicas cannot be computed of "
                    "ragged tensors on a TPU, which takes parts of one size; pad them, or train on one device"
                )
            lengths = self._rows(tf.cast(value.row_lengths(), tf.int32))
            taken = value if self._present is None else value[: self._own(value.nrows(out_type=tf.int32))]
            return tf.RaggedTensor.from_row_lengths(self._rows_of(taken.values), lengths, validate=False)
        mask = keras3.mask_of(value)
        value = tf.convert_to_tensor(value)
        whole = self._rows_of(value[: self._own(tf.shape(value)[0])] if self._has_rows(value) else value)
        if mask is not None:
            keras3.put_mask(whole, tf.cast(self._rows(tf.cast(mask, tf.int32)), tf.bool))
        return whole

    def _own(self, rows: Any) -> Any:
        return rows if self._present is None else tf.where(self._present > 0, rows, 0)

    def _has_rows(self, value: Any) -> bool:
        if value.shape.rank:
            return True
        raise UsageError(
            f"a loss or metric of all {self._context.num_replicas_in_sync} replicas cannot be computed of a tensor of "
            f"shape {tuple(value.shape)}, which has no rows; return one value for each example, or train on one device"
        )

    def _rows_of(self, value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            return self._rows(value)
        dtype = value.dtype
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            raise UsageError(
                f"a loss or a metric of all {self._context.num_replicas_in_sync} replicas cannot be computed of "
                f"{dtype.name} labels, which TensorFlow does not gather; give labels as numbers, or train on one device"
            )
        if dtype not in _GATHERED:
            return tf.cast(self._rows_of(tf.cast(value, sent_as(dtype))), dtype)
        rows = tf.shape(value)[0]
        whole, before = self._of_static(value, rows) if self._static else self._of_any(value, rows)
        # Keras compares labels and outputs by their last dimension, which gathering forgets.
        whole = tf.ensure_shape(whole, [None, *value.shape[1:]])
        if not dtype.is_floating:
            return whole
        if self._of_layer:
            return self._with_gradients_of_all(value, whole, before)
        # Put beside the others, and not added: a difference of infinite outputs would be NaN.
        own = _with_gradient_times(value, self.replicas)
        return tf.tensor_scatter_nd_update(whole, (before + tf.range(rows))[:, tf.newaxis], own)

    def _of_any(self, value: Any, rows: Any) -> tuple[Any, Any]:
        """The rows of all replicas, and the place of this one's first."""
        return self._context.all_gather(tf.stop_gradient(value), 0), self._before(rows)

    def _before(self, rows: Any) -> Any:
        """How many rows the replicas before this one have.

        Args:
            rows: that this replica has.
        """
        return tf.reduce_sum(self._context.all_gather(rows[tf.newaxis], 0)[: self._context.replica_id_in_sync_group])

    def _with_gradients_of_all(self, value: Any, whole: Any, before: Any) -> Any:
        @tf.custom_gradient
        def gathered(value: Any) -> Any:
            rows = tf.shape(value)[0]
            return tf.identity(whole), lambda gradient: self._summed(gradient)[before : before + rows]

        return gathered(value)

    def _of_static(self, value: Any, rows: Any) -> tuple[Any, Any]:
        before = self._context.replica_id_in_sync_group * rows
        if not value.dtype.is_floating:
            return self._context.all_gather(value, 0), before
        # What TensorFlow gathers of a TPU, it multiplies by 0 on all replicas but one: infinite outputs would be NaN.
        shape = tf.concat([[rows * self._context.num_replicas_in_sync], tf.shape(value)[1:]], 0)
        places = (before + tf.range(rows))[:, tf.newaxis]
        return self._summed(tf.scatter_nd(places, tf.stop_gradient(value), shape)), before


def of_tensors(change: Callable[[Any], Any], values: Any) -> Any:
    """A structure of tensors and other values, with the tensors changed."""
    return keras.tree.map_structure(lambda one: change(one) if tf.is_tensor(one) else one, values)


def sent_as(dtype: Any) -> Any:
    """The type that numbers and truth values of a type go from worker to worker as, which holds each of them."""
    if dtype in _GATHERED:
        return dtype
    return tf.float32 if dtype.is_floating else tf.int32 if dtype.size < tf.int32.size else tf.int64


def is_static(strategy: Any) -> bool:
    """Whether XLA compiles the steps of a strategy, and so has to know the number of rows of each replica."""
    return isinstance(strategy, tf.distribute.TPUStrategy | tf.distribute.experimental.TPUStrategy)


def _with_gradient_times(value: Any, factor: Any) -> Any:
    @tf.custom_gradient
    def same(value: Any) -> Any:
        return tf.identity(value), lambda gradient: gradient * tf.cast(factor, gradient.dtype)

    return same(value)


def once(value: Any) -> Any:
    """What all replicas have computed, as what each adds to a sum over them."""
    first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
    return tf.where(first, value, tf.zeros_like(value))


def bytes_of(value: Any) -> int:
    """What a tensor holds, with its mask."""
    mask = keras3.mask_of(value)
    parts = [*tf.nest.flatten(value, expand_composites=True), *([] if mask is None else [mask])]
    return sum(int(tf.size(part)) * part.dtype.size for part in parts)
