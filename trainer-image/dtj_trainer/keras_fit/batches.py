"""Batches that several replicas take of Keras' `train_on_batch` and of generators. Imports TensorFlow and Keras.

To `train_on_batch`, `test_on_batch` and `predict_on_batch`, Keras gives the whole batch to each replica: rows are
predicted once by each, and sums count as often. As for tf_keras, the batch is that of all replicas, the same on all
workers.

TensorFlow takes an array that a generator yields without a copy, and a replica of Mirrored may compute in its memory:
what the user has in the array is overwritten. Keras' fit of a generator or a PyDataset makes such a dataset.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.process.ending import place_of_call


def divide(strategy: Any, batch: Any, *, asked: Any, compared: bool) -> Any:
    """A batch as replicas take it: the same rows in the same order, each replica its part, as equal as they can be.

    Args:
        asked: the model.
        compared: whether the batches of the workers are compared; all of them have to ask for it.

    Raises:
        UsageError: the workers have different batches.
    """
    leaves = keras.tree.flatten(batch)
    if any(isinstance(one, tf.distribute.DistributedValues) for one in leaves):
        return batch
    leaves = [one for one in leaves if _has_rows(one)]
    rows = {int(one.shape[0]) for one in leaves}
    if compared and isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        _compare(strategy, leaves, asked)
    if len(rows) != 1:  # Keras says what is wrong with it
        return batch
    small, more = divmod(rows.pop(), strategy.num_replicas_in_sync)

    def of_each(value: Any) -> Any:
        if not _has_rows(value):
            return value

        def part(context: Any) -> Any:
            place = context.replica_id_in_sync_group
            start, size = place * small + min(place, more), small + (place < more)
            if _is_sparse(value):
                return tf.sparse.slice(value, [start, *[0] * (len(value.shape) - 1)], [size, *value.shape[1:]])
            taken = value[start : start + size]
            return taken if isinstance(taken, tf.RaggedTensor) else tf.convert_to_tensor(taken)

        return strategy.experimental_distribute_values_from_function(part)

    return keras.tree.map_structure(of_each, batch)


def _has_rows(value: Any) -> bool:
    return bool(getattr(value, "shape", ()))


def _is_sparse(value: Any) -> bool:
    return isinstance(value, tf.SparseTensor)


def _compare(strategy: Any, leaves: list[Any], model: Any) -> None:
    digest = 0
    for one in leaves:
        dense = tf.sparse.to_dense(one) if _is_sparse(one) else one
        digest = zlib.crc32(np.ascontiguousarray(dense.numpy() if hasattr(dense, "numpy") else dense).tobytes(), digest)
    if any(other != digest for other in of_each_replica(strategy, digest)):
        raise UsageError(
            f"{type(model).__name__}: the workers gave different batches to train_on_batch, test_on_batch or "
            "predict_on_batch; give the whole batch on each worker, of which each takes its part"
        )


_replicas: ContextVar[int] = ContextVar("replicas", default=1)
"""Among how many replicas the dataset is divided that Keras makes."""


@contextmanager
def dividing(*, among: int) -> Iterator[None]:
    """While Keras makes a dataset of what a `fit` is given.

    Args:
        among: how many replicas it is divided.
    """
    before = _replicas.set(among)
    try:
        yield
    finally:
        _replicas.reset(before)


def from_generator(original: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any) -> Any:
    """The dataset of a generator, of copies of its arrays.

    Raises:
        UsageError: the generator of a `fit` yields None, for which Keras gives an Optional.
    """
    if _replicas.get() > 1 and tf.OptionalSpec(None) in keras.tree.flatten(kwargs.get("output_signature")):
        raise UsageError(
            f"{place_of_call()}the generator yields None, which TensorFlow does not divide among {_replicas.get()} "
            "replicas; leave it out: (x,) in place of (x, None), (x, y) in place of (x, y, None)"
        )
    if not callable(generator):
        return original(generator, *args, **kwargs)

    def copies(*given: Any) -> Iterator[Any]:
        for element in generator(*given):
            yield _copied(element)

    return original(copies, *args, **kwargs)


def _copied(element: Any) -> Any:
    if isinstance(element, np.ndarray):
        return element.copy()
    if isinstance(element, tuple):
        values = [_copied(value) for value in element]
        return type(element)(*values) if hasattr(element, "_fields") else tuple(values)
    if type(element) is dict:
        return {name: _copied(value) for name, value in element.items()}
    return element
