"""Whether what a training changes is finite: weights, and what the optimizer remembers. Imports TensorFlow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class NotFiniteState:
    """What of a training is not finite."""

    what: str
    """As a line begins: `the weights are`."""
    workers: Sequence[str] = ()
    """The workers that it began on, if that is known and each has its own part."""


class FiniteWeights:
    """What has to be finite in every checkpoint: the weights of a model, and the state of its optimizer."""

    def __init__(
        self,
        trained: Iterable[Any],
        others: Iterable[Any] = (),
        optimizer: Iterable[Any] = (),
        *,
        often: bool = False,
    ) -> None:
        """To be made on all tasks, once the variables have the values with which the training begins.

        Args:
            trained: tf.Variables; those of integers are left out.
            others: tf.Variables that layers set, such as the statistics of a normalization. One that is infinite from
                the start may stay so: a layer may look for the least value that it has seen.
            optimizer: tf.Variables that the optimizer sets, such as its slots; as for `others`. One that overflows
                holds its weight forever, and the weight stays finite.
            often: whether it is asked so often that a trace pays: most trainings ask a few times only.
        """
        self._weights = [*_floating(trained), *_finite_at_start(others)]
        self._optimizer = _finite_at_start(optimizer)
        self._often = often
        self._look = self._traced()

    def require(self, optimizer: Iterable[Any]) -> None:
        """Adds variables of an optimizer that were made after the training began: they have to be finite."""
        self._optimizer += _floating(optimizer)
        self._look = self._traced()  # a trace knows only the variables of its time

    def find_not_finite(self) -> NotFiniteState | None:
        """What is not finite; None if all is. It is the same on all tasks, and all have to ask together."""
        weights, optimizer = map(bool, self._look())
        if not weights:
            return NotFiniteState(what="the weights are")
        if not optimizer:
            return NotFiniteState(what="the weights are finite, but the optimizer's state is")
        return None

    def _traced(self) -> Callable[[], tuple[Any, Any]]:
        return tf.function(self._are_finite, autograph=False) if self._often else self._are_finite

    def _are_finite(self) -> tuple[Any, Any]:
        return _variables_are_finite(self._weights), _variables_are_finite(self._optimizer)


def _floating(variables: Iterable[Any]) -> list[Any]:
    return [one for one in variables if one.dtype.is_floating]


def _finite_at_start(variables: Iterable[Any]) -> list[Any]:
    return [one for one in _floating(variables) if bool(_variables_are_finite([one]))]


def _variables_are_finite(variables: Iterable[Any]) -> Any:
    # One after the other: those of parameter servers have to be brought here.
    return tf.reduce_all([all_finite([tf.convert_to_tensor(one)]) for one in variables] or True)


def all_finite(tensors: Sequence[Any]) -> Any:
    """Whether all numbers of these tensors are finite, of a sparse gradient those that it has: a tensor of bool."""
    parts = tf.nest.flatten(list(tensors), expand_composites=True)
    found = [tf.reduce_all(tf.math.is_finite(part)) for part in parts if part.dtype.is_floating]
    return tf.reduce_all(found or True)
