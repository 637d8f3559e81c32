"""What a task has to know of the training examples before its model is built. Imports TensorFlow.

What is measured on held-out examples says nothing about others: of these, only the classes count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dtj_trainer.data.source import Source
from dtj_trainer.data.task_examples import check_classes
from dtj_trainer.errors import UsageError

_BATCH = 1024
_MAX_EXAMPLES = 100_000
"""Enough for a mean; reading all of a large source would take minutes before the first step."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Of each number of an example over the examples: mean, and standard deviation, 1 where that is 0."""

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]


class MomentsOf:
    """Adds batches up to their moments."""

    def __init__(self) -> None:
        self._count = 0
        self._sum: npt.NDArray[np.float64] = np.zeros(())
        self._squares: npt.NDArray[np.float64] = np.zeros(())
        self._origin: npt.NDArray[np.float64] = np.zeros(())

    def add(self, batch: npt.NDArray[Any]) -> None:
        """Takes [examples, ...]."""
        values = batch.astype(np.float64)
        if not self._count:
            # Counted from a value near the mean, or large numbers would lose their small differences.
            self._origin = values.mean(axis=0)
        values = values - self._origin
        self._count += len(values)
        self._sum = self._sum + values.sum(axis=0)
        self._squares = self._squares + np.square(values).sum(axis=0)

    def moments(self) -> Moments:
        """Of all that was added."""
        mean = self._sum / self._count
        deviation = np.sqrt(np.maximum(0.0, self._squares / self._count - np.square(mean)))
        return Moments(mean=mean + self._origin, deviation=np.where(deviation > 0, deviation, 1.0))


def training_examples(data: Source) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Batches (inputs, labels) of the first examples of an epoch, each example once: all, or 100,000 of them."""
    count = min(data.examples, _MAX_EXAMPLES)
    stream = data.batches(batch=min(count, _BATCH), seed=0).unbatch().take(count).batch(_BATCH)
    for inputs, labels in stream:
        yield inputs.numpy(), labels.numpy()


def class_names(data: Source) -> tuple[str, ...]:
    """The names of the classes; their numbers, where the source has no names for its whole-number labels or shares.

    Raises:
        UsageError: a label is neither.
    """
    if data.classes:
        return data.classes
    count = 0
    held_out = ((None, labels.numpy()) for _, labels in data.validation(batch=_BATCH))
    for _, labels in chain(training_examples(data), held_out):
        check_classes(labels, data.name)
        shares = labels.ndim == 2 and labels.shape[1] > 1
        count = labels.shape[1] if shares else max(count, int(labels.max()) + 1)
    if count < 2:
        raise UsageError(f"{data.name}: every label is 0; there is nothing to distinguish")
    return tuple(str(number) for number in range(count))
