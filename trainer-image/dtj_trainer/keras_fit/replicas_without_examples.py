"""An example that stands in for none: a replica without examples of a batch computes on one that another replica has.

It counts for nothing. Without it, TensorFlow's convolutions fail, a mean over no examples is NaN, and so is the whole
sum over the replicas. Imports TensorFlow and Keras.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible
from dtj_trainer.distribution.gathering import sent_as
from dtj_trainer.keras_fit.replica_losses import here

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None


def put(strategy: Any, batch: Any, *, equal: bool) -> tuple[Any, Any]:
    """A batch in which each replica has an example, and how many of each replica's examples are its own.

    A batch with sparse tensors stays as it is, and one of several workers with what no sum over them can give: ragged
    tensors, texts, and tensors whose inner shape changes.

    Args:
        batch: as an iterator of the strategy gives it.
        equal: in a graph, whether a number of examples that is known is that of all replicas.

    Returns:
        The batch, and a number for each replica; None where all of them are known to have as many.
    """
    values = [strategy.experimental_local_results(one) for one in tree.flatten(batch)]
    first = next((one for one in values if _has_rows(one[0])), None)
    if first is None:
        return batch, None
    workers = strategy.num_replicas_in_sync // len(first)
    known = all(isinstance(one, tf.Tensor) and one.shape[0] for one in first)
    if known and equal and not tf.executing_eagerly():
        return batch, None
    counts = [rows_of(one) for one in first]
    fits = all(_can_be_given(one[0], workers) for one in values if _has_rows(one[0]))
    if not fits or (known and workers == 1):
        return batch, _spread(strategy, counts)
    have = _which_have(strategy, counts) if workers > 1 else None
    filled = [_filled(strategy, one, counts, have) if _has_rows(one[0]) else one for one in values]
    spread = [_spread(strategy, one) if new is not one else None for one, new in zip(filled, values, strict=True)]
    leaves = [old if new is None else new for old, new in zip(tree.flatten(batch), spread, strict=True)]
    return tree.pack_sequence_as(batch, leaves), _spread(strategy, counts)


def rows_of(value: Any) -> Any:
    """How many examples a replica's part has."""
    if isinstance(value, tf.RaggedTensor):
        return tf.cast(value.nrows(), tf.int32)
    return tf.cast(value.dense_shape[0], tf.int32) if isinstance(value, tf.SparseTensor) else tf.shape(value)[0]


def _has_rows(value: Any) -> bool:
    return isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor) and value.shape.rank != 0


def _can_be_given(value: Any, workers: int) -> bool:
    """Whether one replica can have an example of another one."""
    if workers == 1 or isinstance(value, tf.SparseTensor):
        return not isinstance(value, tf.SparseTensor)
    numbers = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
    return isinstance(value, tf.Tensor) and numbers and value.shape[1:].is_fully_defined()


def _spread(strategy: Any, values: Sequence[Any]) -> Any:
    """These, one for each replica of this worker."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group % len(values)]
    )


def _which_have(strategy: Any, counts: Sequence[Any]) -> Any:
    """For the first replica of each worker, by its place among all, whether the worker has examples; int32."""
    own = tf.cast(tf.reduce_sum(tf.stack(counts)) > 0, tf.int32)
    places = strategy.num_replicas_in_sync
    return _summed(strategy, len(counts), lambda place: own * tf.one_hot(place, places, dtype=tf.int32))


def _summed(strategy: Any, local: int, value: Callable[[int], Any]) -> Any:
    """Over all workers what the first replica of each gives, by its place among all."""

    def of_replica(context: Any) -> Any:
        place = context.replica_id_in_sync_group
        return value(place) if place % local == 0 else tf.zeros_like(value(place))

    return strategy.reduce("SUM", strategy.experimental_distribute_values_from_function(of_replica), axis=None)


def _filled(strategy: Any, values: Sequence[Any], counts: Sequence[Any], have: Any) -> Sequence[Any]:
    """The parts of one tensor of the batch; those without examples have one of another replica.

    Args:
        have: which workers have examples; None for a single one.
    """
    donated = tf.concat([one[:1] for one in values], 0)[:1]  # of the first that has any
    if have is not None:
        donated = _of_another_worker(strategy, donated, len(counts), have)
    return [
        _of_any_number(tf.cond(count > 0, lambda value=value: value, lambda: donated))
        for value, count in zip(values, counts, strict=True)
    ]


def _of_any_number(value: Any) -> Any:
    """Known to have rows and not how many: Keras weighs a batch by that, and one replica must not do it alone."""
    if isinstance(value, tf.RaggedTensor) or tf.executing_eagerly():
        return value
    return tf.compat.v1.placeholder_with_default(value, [None, *value.shape[1:]])


def _of_another_worker(strategy: Any, donated: Any, local: int, have: Any) -> Any:
    """An example of the first worker that has one, where a worker has none: all take part in that."""

    def take() -> Any:
        chosen = tf.argmax(have, output_type=tf.int32)
        number = sent_as(donated.dtype)
        nothing = tf.zeros([1, *donated.shape[1:]], number)
        given = tf.concat([tf.cast(donated, number), nothing], 0)[:1]
        return tf.cast(_summed(strategy, local, lambda place: tf.where(chosen == place, given, nothing)), donated.dtype)

    return tf.cond(tf.reduce_sum(have) * local < strategy.num_replicas_in_sync, take, lambda: donated)


def without(outputs: Any, count: Any) -> Any:
    """What a replica gives for its own examples: nothing if its example only stands in.

    Args:
        count: of its own examples; None if all are.
    """
    return outputs if count is None else outputs[: tf.where(count > 0, rows_of(outputs), 0)]


@contextmanager
def unmeasured(owners: Sequence[Any]) -> Iterator[None]:
    """Around a replica's step: metrics stay as they are if its example only stands in.

    Args:
        owners: metrics, and anything else.
    """
    metrics = [one for one in owners if isinstance(one, keras.Metric)] if here.present is not None else []
    before = [(metric, each, tf.identity(each.value)) for metric in metrics for each in metric.variables]
    here.once_a_batch, here.unmeasured = [], {id(variable): value for _, variable, value in before}
    yield
    for metric, variable, value in before:
        if not any(metric is noted for noted in here.once_a_batch):
            variable.assign(tf.where(here.present > 0, variable.value, value))
