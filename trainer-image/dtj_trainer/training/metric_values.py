"""Metrics as sums that replicas and workers add up, and the values that follow from them. Imports TensorFlow."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.errors import UsageError

Tensor = Any


def means_by_example(metrics: Sequence[str], sums: Any) -> Mapping[str, float]:
    """The mean of each metric over the examples.

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

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(self._sums + other._sums, self._means)

    def __getitem__(self, name: str) -> float:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> Mapping[str, float]:
        return self._means(self._sums)


def flat(values: Iterable[Tensor]) -> list[Tensor]:
    """Each as a vector of float32."""
    return [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values]


def values_of(sums: Any, variables: Sequence[Any]) -> list[Tensor]:
    """The values of these variables, from the vector that `flat` gave of them."""
    values, at = [], 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        values.append(tf.cast(tf.reshape(tf.constant(sums[at : at + size]), variable.shape), variable.dtype))
        at += size
    return values


def size_of(variables: Iterable[Any]) -> int:
    """How many numbers these variables have."""
    return sum(int(np.prod(variable.shape)) for variable in variables)


def numbers(results: Mapping[str, Any]) -> dict[str, float]:
    """Results of metrics by name, those in mappings and vectors included."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= numbers(value)
            continue
        array = np.asarray(value, np.float64)
        if array.ndim == 0:
            found[name] = float(array)
        else:
            found |= {f"{name}_{index}": float(one) for index, one in enumerate(array.ravel())}
    return found


def check_sums_from_zero(name: object, metrics: Iterable[Any]) -> None:
    """Makes sure that what each metric keeps is summed over replicas, and is zero at first.

    Args:
        name: of the model.

    Raises:
        UsageError: it is not.
    """
    for metric in metrics:
        for variable in metric.variables:
            start = keras.ops.convert_to_numpy(tf.convert_to_tensor(two_kerases.variables([variable])[0]))
            summed = str(getattr(variable, "aggregation", "sum")).rpartition(".")[2].lower() in ("sum", "none")
            if not summed or start.any():
                raise UsageError(
                    f"{name}: the metric {metric.name} keeps {variable.name}, which is no sum from zero, and cannot be "
                    "added up over steps and replicas; leave the metric out, or keep sums"
                )


def check_added_up(name: object, metric: Any, once: Sequence[Tensor], twice: Sequence[Tensor]) -> None:
    """Makes sure that a metric gains the same from the same examples, whatever it has seen before.

    Args:
        name: of the model.
        once: its variables after these examples.
        twice: its variables after the same examples again.

    Raises:
        UsageError: it does not.
    """
    for variable, one, two in zip(metric.variables, once, twice, strict=True):
        if not np.allclose(2 * np.asarray(one, np.float64), np.asarray(two, np.float64), rtol=1e-3, equal_nan=True):
            raise UsageError(
                f"{name}: the metric {metric.name} does not add up: {variable.name} after two batches is not the sum "
                "of what each gives, and cannot be added up over steps and replicas; leave the metric out, or keep sums"
            )


def is_sum(whole: Tensor, first: Tensor, rest: Tensor) -> bool:
    """Whether what a metric gains by some examples is the sum of what it gains by two parts of them."""
    whole, first, rest = (np.asarray(one, np.float64) for one in (whole, first, rest))
    largest = float(np.abs(whole[np.isfinite(whole)]).max(initial=0))
    return bool(np.allclose(whole, first + rest, rtol=1e-4, atol=1e-5 * largest, equal_nan=True))


class DefaultMetric:
    """What is shown of a model that was compiled without metrics: its accuracy, or its mean absolute error."""

    def __init__(self, name: str, *, threshold: float, binary: bool) -> None:
        self.name = name
        self._threshold = threshold
        self._binary = binary

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Of each example, by position where there are positions; float32.

        Args:
            labels: [batch, ...] or [batch, ..., 1] as numbers of classes, or as the outputs.
            outputs: [batch, ..., units].
        """
        by_unit = self.name != "accuracy" or self._binary or outputs.shape[-1] == 1
        if by_unit and labels.shape.rank == outputs.shape.rank - 1:
            labels = labels[..., tf.newaxis]
        if self.name != "accuracy":
            found = keras.losses.mean_absolute_error(labels, outputs)
        elif by_unit:
            yes = tf.cast(labels, tf.float32) > 0.5
            found = keras.metrics.binary_accuracy(yes, outputs, threshold=self._threshold)
        elif labels.shape.rank < outputs.shape.rank or labels.shape[-1] == 1:
            found = keras.metrics.sparse_categorical_accuracy(labels, outputs)
        else:
            found = keras.metrics.categorical_accuracy(labels, outputs)
        return tf.cast(found, tf.float32)

    def sums(self, labels: Tensor, outputs: Tensor, mask: Tensor) -> list[Tensor]:
        """The sum over all that count, and their number."""
        values = self.values(tf.nest.flatten(labels)[0], tf.nest.flatten(outputs)[0])
        counts = tf.ones_like(values) if mask is None else tf.cast(mask, tf.float32)
        return [tf.reduce_sum(values * counts), tf.reduce_sum(counts)]
