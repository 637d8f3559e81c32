"""The order of the examples: a function of seed and epoch, so that a run that resumes goes on at its place.

Imports TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Stream

WINDOW = 10_000
"""Examples among which the next is drawn, where an epoch is no permutation: all of a small data set, the nearest ones
of a large one."""
_EPOCH_SEEDS = 1_000_003


def after_seen(seen: int, *, examples: int, epoch: Callable[[Any], Stream]) -> Stream:
    """Endless examples, epoch after epoch, from the first one on that was not seen.

    Args:
        examples: of an epoch.
        epoch: gives the examples of one epoch in their order; of an int64 tensor, from 0.
    """
    number, place = divmod(seen, examples)
    # A range that ends is the only one with a start; nobody lives to see its end.
    return tf.data.Dataset.range(number, tf.int64.max).flat_map(epoch).skip(place)


def permutation(count: Any, *, seed: Any, epoch: Any) -> Any:
    """0 to count - 1 in an order of the epoch's own: int64 [count]."""
    return tf.random.experimental.stateless_shuffle(tf.range(count, dtype=tf.int64), seed=[seed, epoch])


def shuffled(examples: Stream, *, seed: Any, epoch: Any) -> Stream:
    """The examples of one epoch, each drawn among the next `WINDOW`; to be called in the function of a dataset."""
    # The seed of this function's graph: the order does not depend on the global seed, and a seed of 0 is one as well.
    tf.random.set_seed(1)
    own = tf.cast(seed, tf.int64) * _EPOCH_SEEDS + epoch
    return examples.shuffle(WINDOW, seed=own, reshuffle_each_iteration=False)
