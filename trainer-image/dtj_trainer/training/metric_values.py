"""Metrics as numbers that steps, replicas and workers put together, and the values of them. Imports TensorFlow."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.errors import UsageError

Tensor = Any
After: TypeAlias = Callable[[Sequence[Tensor], slice], Sequence[Tensor]]
"""(values of the variables, part of some examples) -> the values after these examples; nothing is changed."""


def means_by_example(metrics: Sequence[str], sums: Any) -> Mapping[str, float]:
    """The mean of each metric over the examples.

    Args:
        sums: of each metric, and the number of examples.
    """
    *values, examples = (float(value) for value in sums)
    return {name: value / examples if examples else math.nan for name, value in zip(metrics, values, strict=True)}


class Measured(Mapping[str, float]):
    """Metrics by name that can be put together over calls, which their values alone cannot."""

    def __init__(
        self, sums: Any, means: Callable[[Any], Mapping[str, float]], joined: Callable[[Any, Any], Any] = np.add
    ) -> None:
        """Args:
        sums: vector that the metrics follow from.
        joined: two such vectors as one.
        """
        self._sums = np.asarray(sums, np.float64)
        self._means = means
        self._joined = joined

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(other._joined(self._sums, other._sums), self._means, other._joined)

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


class Join(Enum):
    """How what a variable of a metric is after two batches follows from what it is after each of them."""

    SUM = "sum"
    LARGEST = "largest"
    SMALLEST = "smallest"

    def is_of(self, whole: Tensor, first: Tensor, rest: Tensor) -> bool:
        """Whether what it is after some examples follows so from what it is after two parts of them."""
        if self is Join.SUM:
            return is_sum(whole, first, rest)
        return bool(np.array_equal(whole, _LARGER[self](first, rest), equal_nan=True))


_LARGER: Mapping[Join, Callable[[Any, Any], Any]] = {Join.LARGEST: np.maximum, Join.SMALLEST: np.minimum}


class MetricSums:
    """The variables of metrics in a vector that steps, replicas and workers put together.

    What adds up is there as it is. Of the largest or smallest value, each replica has a place of its own: vectors of
    several replicas are added, and the values are compared where they are read.
    """

    def __init__(self, name: object, owned: Sequence[tuple[Any, Any]], after: After) -> None:
        """To be called in the strategy's scope.

        Args:
            name: of the model.
            owned: metrics and their variables.
            after: see `After`.

        Raises:
            UsageError: a metric does not add up, and keeps no largest or smallest value.
        """
        self.start = _after_reset(owned)
        """The values of the variables before any example."""
        self._replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self.joins = _joins(name, owned, self.start, after) if owned else []
        kept = [(join, start) for join, start in zip(self.joins, self.start, strict=True) if join is not Join.SUM]
        self._added = sum(map(_size, self.start)) - sum(_size(start) for _, start in kept)
        signs = [np.full(_size(start), 1.0 if join is Join.LARGEST else -1.0, np.float32) for join, start in kept]
        self._signs = np.concatenate(signs) if signs else np.zeros(0, np.float32)
        # A place says with a last number whether there is anything in it.
        self._place = len(self._signs) + 1 if kept else 0
        self.size = self._added + self._replicas * self._place
        """How many numbers the vector has."""

    def parts(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The vector of the values of the variables after a batch on this replica, in pieces: float32."""
        if not self._place:
            return flat(values)
        added, kept = self._parted(values)
        here = tf.concat([tf.concat(flat(kept), axis=0) * self._signs, [1.0]], axis=0)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        places = tf.one_hot(replica, self._replicas)[:, tf.newaxis]
        # Not a product: zero times infinity is no number.
        kept_here = tf.reshape(tf.where(places > 0, here, 0.0), [-1])
        return [*flat(added), kept_here]

    def joined(self, one: Any, other: Any) -> Any:
        """Two vectors as one; also where these numbers are the last of longer vectors, whose others are added."""
        if not self._place:
            return one + other
        ops = tf if tf.is_tensor(one) else np
        at = one.shape[0] - self._replicas * self._place
        places, others = (ops.reshape(vector[at:], [self._replicas, self._place]) for vector in (one, other))
        both = ops.reshape(_of_both(ops, places, others), [-1])
        return ops.concat([one[:at] + other[:at], both], axis=0)

    def add_to(self, variable: Any, vector: Tensor) -> None:
        """Puts a vector into a variable, on this replica."""
        if self._place:
            # As a sum, since the replicas of CentralStorage have one variable: each changes its own place. Infinity
            # that stays is no change.
            before = tf.convert_to_tensor(variable)
            joined = self.joined(before, vector)
            vector = tf.where(tf.equal(joined, before), 0.0, joined - before)
        variable.assign_add(vector)

    def values(self, vector: Any) -> list[Tensor]:
        """The values of the variables, from a vector of all replicas."""
        vector = np.asarray(vector, np.float64)
        places = vector[self._added :].reshape(-1, self._place or 1)
        kept = np.zeros(self._place)
        for place in places:
            kept = _of_both(np, kept, place)
        values: list[Tensor] = []
        at_added = at_kept = 0
        for join, start in zip(self.joins, self.start, strict=True):
            if join is Join.SUM:
                found = vector[at_added : (at_added := at_added + _size(start))]
            elif kept[-1]:
                part = slice(at_kept, at_kept := at_kept + _size(start))
                found = kept[part] * self._signs[part]
            else:
                found = start
            values.append(tf.cast(tf.reshape(tf.constant(found), start.shape), start.dtype))
        return values

    def _parted(self, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """What adds up, and the largest and smallest values."""
        pairs = list(zip(self.joins, values, strict=True))
        return (
            [value for join, value in pairs if join is Join.SUM],
            [value for join, value in pairs if join is not Join.SUM],
        )


def _after_reset(owned: Sequence[tuple[Any, Any]]) -> list[Tensor]:
    """What variables of metrics are when an epoch begins, which may be something else than what they were made with."""
    made = [tf.convert_to_tensor(one) for one in two_kerases.variables([variable for _, variable in owned])]
    with keras.StatelessScope() as scope:
        for metric in {id(metric): metric for metric, _ in owned}.values():
            metric.reset_state()
        reset = [scope.get_current_value(variable) for _, variable in owned]
    return [one if value is None else tf.convert_to_tensor(value) for one, value in zip(made, reset, strict=True)]


def _of_both(ops: Any, one: Any, other: Any) -> Any:
    """Two places as one. What is empty is zero throughout."""
    both = (one[..., -1:] > 0) & (other[..., -1:] > 0)
    return ops.where(both, ops.maximum(one, other), one + other)


def _size(value: Any) -> int:
    return int(np.prod(value.shape))


def _joins(name: object, owned: Sequence[tuple[Any, Any]], start: Sequence[Tensor], after: After) -> list[Join]:
    whole, first, rest = slice(None), slice(0, 1), slice(1, None)
    once = after(start, whole)
    twice = after(once, whole)
    parts: list[Sequence[Tensor]] = []
    joins: list[Join] = []
    for at, (metric, variable) in enumerate(owned):
        if _doubled(once[at], twice[at]):
            _check_sum_from_zero(name, metric, variable, start[at])
            joins.append(Join.SUM)
            continue
        if not parts:
            one, other = after(start, first), after(start, rest)
            parts = [one, other, after(one, rest), after(other, first)]
        kept = _kept(*(np.asarray(part[at]) for part in parts), start=np.asarray(start[at]))
        if kept is None:
            raise UsageError(
                f"{name}: the metric {metric.name} does not add up: {variable.name} after two batches is neither the "
                "sum of what each gives nor the larger or smaller of both, and cannot be put together over steps and "
                "replicas; leave the metric out, or keep sums"
            )
        joins.append(kept)
    return joins


def _doubled(once: Tensor, twice: Tensor) -> bool:
    once, twice = np.asarray(once, np.float64), np.asarray(twice, np.float64)
    return bool(np.allclose(2 * once, twice, rtol=1e-3, equal_nan=True))


def _kept(first: Any, rest: Any, both: Any, turned: Any, *, start: Any) -> Join | None:
    """Whether a variable keeps the largest or smallest value, by its values after parts of some examples.

    Args:
        both: after the first part and then the rest.
        turned: after the rest and then the first part.
        start: before any.
    """
    for join, larger in _LARGER.items():
        # Where the parts give the same, only the start tells which of them it is.
        if all(np.array_equal(found, larger(first, rest)) for found in (both, turned)) and np.array_equal(
            larger(first, start), first
        ):
            return join
    return None


def _check_sum_from_zero(name: object, metric: Any, variable: Any, start: Tensor) -> None:
    """Makes sure that what a metric adds up is summed over replicas, and is zero at first."""
    summed = str(getattr(variable, "aggregation", "sum")).rpartition(".")[2].lower() in ("sum", "none")
    if not summed or np.asarray(start).any():
        raise UsageError(
            f"{name}: the metric {metric.name} keeps {variable.name}, which is no sum from zero, and cannot be "
            "added up over steps and replicas; leave the metric out, or keep sums"
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
            outputs: [batch, ..., units], or [batch].
        """
        if outputs.shape.rank == 1:
            labels, outputs = tf.reshape(labels, [-1, 1]), outputs[:, tf.newaxis]
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
