"""What a run measures while it trains: sums that replicas and workers add up, and the metrics that follow from them.

Imports TensorFlow.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from dtj_trainer.tasks import LearningTask

Tensor = Any


class Objective(Protocol):
    """The loss of one model under one strategy, and its metrics. All state is in sums, which the caller keeps."""

    @property
    def size(self) -> int:
        """How many sums there are."""
        ...

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What one replica's share of a batch adds to the loss of the global batch, and to the sums: [size]."""
        ...

    def by_batch(self) -> AbstractContextManager[None]:
        """While a graph is made in here, `loss` evaluates: each replica has whole batches, of any size."""
        ...

    def means(self, sums: Any) -> Mapping[str, float]:
        """The metrics by name, `loss` first, of sums over all replicas and any number of steps."""
        ...


class ByExample:
    """The objective of a task that judges each example by itself: means over the examples."""

    def __init__(self, task: LearningTask, model: Any, *, batch: int | None) -> None:
        """Args:
        batch: global batch size; None: whatever each batch has, on one replica.
        """
        self._task = task
        self._model = model
        self._batch = batch
        self.size = len(task.metrics) + 1

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """See `Objective`. A replica with one example less than another weighs less."""
        measured = self._task.compute_metrics(outputs, labels)
        sums = [tf.reduce_sum(measured[name]) for name in self._task.metrics]
        rows = tf.cast(tf.size(measured["loss"]), tf.float32)
        loss = tf.reduce_sum(measured["loss"]) / (rows if self._batch is None else self._batch)
        penalties = self._model.losses
        if penalties:
            # Those of activations are means over a replica's examples.
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            loss += tf.add_n(penalties) * (1 / replicas if self._batch is None else rows / self._batch)
        return loss, tf.stack([*sums, rows])

    def by_batch(self) -> AbstractContextManager[None]:
        """See `Objective`. The sums are the same however the examples are divided."""
        return nullcontext()

    def means(self, sums: Any) -> Mapping[str, float]:
        """See `Objective`."""
        return means_by_example(self._task.metrics, sums)


def means_by_example(metrics: Sequence[str], sums: Any) -> Mapping[str, float]:
    """The mean of each metric.

    Args:
        sums: of each metric, and the number of examples.
    """
    *values, examples = (float(value) for value in sums)
    return {name: value / examples if examples else math.nan for name, value in zip(metrics, values, strict=True)}


class Measured(Mapping[str, float]):
    """Metrics by name that can be added up over calls, which their values alone cannot."""

    def __init__(self, sums: Any, means: Callable[[Any], Mapping[str, float]]) -> None:
        self._sums = np.asarray(sums, np.float64)
        self._means = means
        self._values: Mapping[str, float] | None = None

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(self._sums + other._sums, self._means)

    def __getitem__(self, name: str) -> float:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def _found(self) -> Mapping[str, float]:
        if self._values is None:
            self._values = self._means(self._sums)
        return self._values
