"""A data set that fits into memory, as a source. Imports TensorFlow."""

from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Stream
from dtj_trainer.datasets import Dataset


class Arrays:
    """A `dtj_trainer.data.source.Source` over arrays.

    Every epoch is a permutation of its own, drawn from seed and number, so a run that resumes skips to the right
    epoch at once and reads past at most one epoch of indices; batches run on over the end of an epoch, so every
    batch is full.
    """

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self.name = data.name
        self.classes = data.classes
        self.examples = len(data.training)
        self.held_out_examples = len(data.held_out)
        inputs = data.training.inputs
        self.input_spec = tf.TensorSpec((None, *inputs.shape[1:]), tf.as_dtype(inputs.dtype))

    def batches(self, *, batch: int, seed: Any, first_step: int = 0) -> Stream:
        """See `Source`."""
        epoch, offset = divmod(first_step * batch, self.examples)

        def indices(epoch: Any) -> Any:
            order = tf.range(self.examples, dtype=tf.int64)
            return tf.data.Dataset.from_tensor_slices(
                tf.random.experimental.stateless_shuffle(order, seed=[seed, epoch])
            )

        def examples(index: Any) -> tuple[Any, Any]:
            return tf.gather(inputs, index), tf.gather(labels, index)

        inputs, labels = tf.constant(self._data.training.inputs), tf.constant(self._data.training.labels)
        stream = tf.data.Dataset.range(epoch, tf.int64.max).flat_map(indices).skip(offset)
        # Indices are batched before they become examples: one gather a batch instead of one copy an example.
        stream = stream.batch(batch, drop_remainder=True).map(examples)
        return stream.with_options(_options()).prefetch(tf.data.AUTOTUNE)

    def held_out(self, *, batch: int) -> Stream:
        """See `Source`."""
        held_out = self._data.held_out
        return tf.data.Dataset.from_tensor_slices((held_out.inputs, held_out.labels)).batch(batch)


def _options() -> Any:
    options = tf.data.Options()
    # Each worker takes its share of every global batch: the same batches whatever the number of workers.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return options
