"""The sum of the gradients over the replicas, before an optimizer does anything else with them. Imports TensorFlow."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def reduce_each(gradients: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Sums (gradient, variable) pairs over all replicas, each for itself; to be called by each of them. None stays."""
    pairs = list(gradients)
    context = tf.distribute.get_replica_context()
    there = [gradient for gradient, _ in pairs if gradient is not None]
    if context is None or not there:
        return pairs
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
    return [(gradient if gradient is None else next(sums), variable) for gradient, variable in pairs]
