"""The examples that all workers train in the first epoch of a `fit`, compared with what their data hold.

Imports TensorFlow and Keras.
"""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

import tensorflow as tf

from dtj_trainer.compat import incompatible, private
from dtj_trainer.compat.tensorflow import components
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.keras_fit import pipelines
from dtj_trainer.keras_fit.replicas_without_examples import rows_of

try:
    from keras.src import tree
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

log = logging.getLogger(__name__)

held: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""By the iterator of an epoch of several workers, how many examples it has; missing where this is not known."""
_counted: WeakKeyDictionary[Any, "Counted"] = WeakKeyDictionary()
"""By model, what its train step counts."""


def note(epoch: Any, strategy: Any, dataset: Any, *, own: bool) -> None:
    """Notes what the data of an epoch hold, if all workers know it. All of them have to call it.

    Args:
        own: whether each worker has a part of its own.
    """
    arrays = epoch.data_adapter if isinstance(epoch.data_adapter, ArrayDataAdapter) else None
    length = private(arrays, "_num_samples", library="keras") if arrays else pipelines.examples_of(dataset, part=own)
    each = set(of_each_replica(strategy, 0 if epoch.steps_per_epoch or length is None else int(length)))
    if len(each) == 1 and each != {0}:
        held[epoch] = each.pop()


class Counted:
    """Counts the examples of a model's train step."""

    def __init__(self, model: Any, strategy: Any) -> None:
        self._strategy, self._before = strategy, 0
        self._epoch: Callable[[], Any] = lambda: None
        with strategy.scope():
            self._seen = tf.Variable(
                tf.zeros([], tf.int64), trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM,
            )  # fmt: skip
        _counted[model] = self

    def add(self, data: Any, count: Any) -> None:
        """Counts a replica's examples, in its step.

        Args:
            count: of those that are its own; None if all are.
        """
        if count is None:
            count = next((rows_of(one) for one in tree.flatten(data) if one is not None and one.shape.rank != 0), 0)
        self._seen.assign_add(tf.cast(count, tf.int64))

    def begin(self, epoch: Any) -> None:
        """Notes of which `fit` the next steps are, by Keras' iterator of its epochs; None: of none."""
        if epoch is None:
            self._expected()
        elif epoch is not self._epoch():
            self._epoch, self._before = ref(epoch), self._here()

    def _expected(self) -> int | None:
        """What the data hold of the epoch under way, if it is not compared yet; from now on it is."""
        epoch = self._epoch()
        return None if epoch is None else held.pop(epoch, None)

    def _here(self) -> int:
        return sum(int(one) for one in components(self._seen))

    def compare(self, *, stopped: bool) -> None:
        """Warns if others were seen than the data hold. All workers have to call it at the end of an epoch."""
        holds = self._expected()
        if holds is None:
            return
        each = of_each_replica(self._strategy, -1 if stopped else self._here() - self._before)
        seen = sum(each) // len(self._strategy.extended.worker_devices)
        if min(each) >= 0 and seen != holds and self._strategy.extended.should_checkpoint:
            log.warning(
                f"fit: all workers together have trained {seen} examples in the first epoch, the data hold {holds}; "
                "give shard() the number of workers and each its own index, or give all of the data on each worker"
            )


def epoch_ended(model: Any) -> None:
    """Compares, if a train step of this model is counted. All workers have to call it."""
    if model in _counted:
        _counted[model].compare(stopped=bool(model.stop_training))
