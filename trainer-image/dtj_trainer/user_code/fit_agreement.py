"""Keeps the workers of Keras' `fit` together, whatever a callback of one of them decides. Imports TensorFlow.

Callbacks see the same values on all workers. One that goes by its worker's own clock, memory or files decides alone:
the others would wait for a worker that has left the loop, or go on with another learning rate.
"""

import logging
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import keras_compat
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.config.nonfinite import workers_of
from dtj_trainer.distribution.strategies import of_each_replica
from dtj_trainer.errors import WorkersDiffer

log = logging.getLogger(__name__)

_KNOWN = ("keras.", "dtj_trainer.", "dtj_launch.")
"""Callbacks that decide by what all workers know."""


class FitAgreement:
    """See `dtj_trainer.compat.fit_listeners.Agreement`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def after_batch(self, callbacks: Sequence[Any], model: Any) -> None:
        """Lets all workers stop where a callback of one has stopped the training: asks where one may do so."""
        if _spans_workers(model) and any(map(_acts_in_batches, callbacks)):
            self._stop_together(model, of_each_replica(model.distribute_strategy, int(model.stop_training)))

    def after_epoch(self, model: Any, epoch: int) -> None:
        """The same; and compares what callbacks have made of the learning rate.

        Raises:
            WorkersDiffer: it differs between workers.
        """
        if not _spans_workers(model):
            return
        votes = of_each_replica(model.distribute_strategy, int(model.stop_training) << 32 | _bits(_rate_of(model)))
        rates = [vote & 0xFFFFFFFF for vote in votes]
        for replica, rate in enumerate(rates):
            if rate != rates[0]:
                first, other = self._names([0], len(votes))[0], self._names([replica], len(votes))[0]
                raise WorkersDiffer(
                    f"fit: after epoch {epoch + 1} the learning rate is {_number(rates[0]):g} on {first} and "
                    f"{_number(rate):g} on {other}; let callbacks set it by what all workers know, such as their logs"
                )
        self._stop_together(model, [vote >> 32 for vote in votes])

    def _stop_together(self, model: Any, stopped: Sequence[int]) -> None:
        if not any(stopped):
            return
        model.stop_training = True
        if not all(stopped) and self._cluster.leads:
            names = self._names([replica for replica, stops in enumerate(stopped) if stops], len(stopped))
            log.warning(f"a callback on {', '.join(names)} has stopped the training: all workers stop")

    def _names(self, replicas: Sequence[int], total: int) -> Sequence[str]:
        return workers_of(self._cluster, replicas, total=total)


def _spans_workers(model: Any) -> bool:
    return isinstance(model.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy)


def _acts_in_batches(callback: Any) -> bool:
    by_the_user = isinstance(callback, keras.callbacks.LambdaCallback)
    if type(callback).__module__.startswith(_KNOWN) and not by_the_user:
        return False
    return keras_compat.sees_batches(callback, keras)


def _rate_of(model: Any) -> float:
    optimizer = model.optimizer
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return 0.0
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


def _number(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))
