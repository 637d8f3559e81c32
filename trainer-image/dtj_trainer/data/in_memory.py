"""A data set that fits into memory, as a source. Imports TensorFlow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.data.pipeline import Indexed
from dtj_trainer.data.sharding import options
from dtj_trainer.data.source import Stream
from dtj_trainer.datasets import Dataset


class Arrays(Indexed):
    """A source over arrays. A record is an index, so that a batch is one gather and not one copy an example."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self.name = data.name
        self.classes = data.classes
        self.examples = len(data.training)
        self.validation_examples = len(data.validation)
        self.training = np.arange(self.examples)
        inputs = data.training.inputs
        self.input_spec = tf.TensorSpec((None, *inputs.shape[1:]), tf.as_dtype(inputs.dtype))

    def decoder(self) -> Callable[..., tuple[Any, Any]]:
        """Indices -> examples."""
        inputs, labels = tf.constant(self._data.training.inputs), tf.constant(self._data.training.labels)
        return lambda index: (tf.gather(inputs, index), tf.gather(labels, index))

    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        inputs, labels = self._data.validation.inputs, self._data.validation.labels
        stream = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(batch)
        if self._after is not None:
            encode = self._after
            stream = stream.map(lambda inputs, labels: (encode(inputs), labels))
        return stream.with_options(options())

    def diagnose(self) -> str | None:
        """What is in memory can be read."""
        return None
