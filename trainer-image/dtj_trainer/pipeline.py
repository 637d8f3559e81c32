"""The order in which examples are seen, as a tf.data pipeline that can begin at any step.

The order is a function of the seed alone. Every epoch is a permutation of its own, drawn from seed and number, so a run
that resumes skips to the right epoch at once and reads past at most one epoch of indices; batches run on over
the end of an epoch, so every batch is full. Imports TensorFlow.
"""

from typing import Any

import tensorflow as tf

from dtj_trainer.datasets import Split


def total_steps(examples: int, *, epochs: int, batch: int) -> int:
    """Steps until each example was seen `epochs` times, rounded up to full batches."""
    return -(-epochs * examples // batch)


def epoch_of(step: int, *, examples: int, batch: int, epochs: int) -> int:
    """The epoch, counted from 1, that the last example of this step (or the first, for step 0) belongs to."""
    return min(epochs, (max(1, step * batch) - 1) // examples + 1)


def batches(data: Split, *, batch: int, seed: Any, first_step: int = 0) -> Any:
    """Endless batches (inputs, labels), of `batch` examples each.

    Args:
        seed: a whole number, or a tensor of one.
        first_step: how many batches of the stream to leave out.
    """
    epoch, offset = divmod(first_step * batch, len(data))

    def indices(epoch: Any) -> Any:
        order = tf.random.experimental.stateless_shuffle(tf.range(len(data), dtype=tf.int64), seed=[seed, epoch])
        return tf.data.Dataset.from_tensor_slices(order)

    def examples(index: Any) -> tuple[Any, Any]:
        return tf.gather(inputs, index), tf.gather(labels, index)

    inputs, labels = tf.constant(data.inputs), tf.constant(data.labels)
    stream = tf.data.Dataset.range(epoch, tf.int64.max).flat_map(indices).skip(offset)
    # Indices are batched before they become examples: one gather a batch instead of one copy an example.
    stream = stream.batch(batch, drop_remainder=True).map(examples)
    return stream.with_options(_options()).prefetch(tf.data.AUTOTUNE)


def _options() -> Any:
    options = tf.data.Options()
    # Each worker takes its share of every global batch: the same batches whatever the number of workers.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return options
