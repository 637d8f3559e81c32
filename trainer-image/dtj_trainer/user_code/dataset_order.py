"""Whether a user's dataset gives its examples in the same order each time it is read. Imports TensorFlow.

An example's place decides whether it is held out, where a run resumes, and which worker takes it. Only the first
examples are read: a dataset that shuffles shows it there.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

EXAMPLES = 256
"""How many are read at most."""


@dataclass(frozen=True)
class Reading:
    """The first examples of a dataset as they came, in digests: of each the inputs, and the rest, such as labels."""

    inputs: Sequence[str]
    labels: Sequence[str]

    def is_in_order_of(self, *others: "Reading") -> bool:
        """Whether all came in the same order. Inputs that change by themselves, as by augmentation, are no sign."""
        return all(map(self._is_in_order_of, others))

    def _is_in_order_of(self, other: "Reading") -> bool:
        if self.inputs == other.inputs or sorted(self.inputs) == sorted(other.inputs):
            return self == other
        return self.labels == other.labels

    def digest(self, *others: "Reading") -> str:
        """What is the same each time it is read, in a few characters."""
        same = (self.inputs, self.labels) if all(self.inputs == other.inputs for other in others) else self.labels
        return hashlib.sha256(repr(same).encode()).hexdigest()[:16]


def read(dataset: Any, most: int = EXAMPLES) -> Reading:
    """Reads the first examples. What cannot be read is left to who reads all of it, and says why."""
    inputs, labels = [], []
    try:
        for example in dataset.take(most):
            first, *rest = example if isinstance(example, tuple) else (example,)
            inputs.append(_digest(first))
            labels.append(_digest(rest))
    except tf.errors.OpError:
        pass
    return Reading(tuple(inputs), tuple(labels))


def _digest(values: Any) -> str:
    digest = hashlib.sha256()
    for tensor in tf.nest.flatten(values, expand_composites=True):
        digest.update(tf.io.serialize_tensor(tensor).numpy())
    return digest.hexdigest()[:16]
