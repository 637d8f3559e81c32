"""From records to full batches, which run on over the end of an epoch: what all formats have in common.

There is no last batch with fewer examples; `dtj_trainer.training.stepping` counts the steps. Imports TensorFlow.

A record is what a format reads and has not decoded yet: an index, a line, a serialized example, the path of an image.
Records are put in order, skipped, batched and divided among the workers; only what is left is decoded.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from dtj_trainer.autograph import as_written
from dtj_trainer.data.shuffling import WINDOW, after_seen, permutation
from dtj_trainer.data.source import Stream, endless, stream_options
from dtj_trainer.data.worker_shards import Share
from dtj_trainer.datasets import Dataset
from dtj_trainer.errors import UsageError

_PART = 64


class FullBatches(ABC):
    """A `dtj_trainer.data.source.Source` over records; also `dtj_trainer.data.worker_shards.Divisible`.

    Batches run on over the end of an epoch, so every batch is full. A run that resumes skips to its epoch at once, and
    within it over records that are not decoded.
    """

    name: str
    classes: tuple[str, ...]
    examples: int
    validation_examples: int
    input_spec: Any
    exact_inputs = False
    """Whether each machine gets the same bits, as of text and numbers in files; a picture may be decoded otherwise."""
    counts = ""
    """Of records, file by file, where that is known: what workers with the same files agree on."""
    decodes_batches = True
    """Whether the decoder takes a batch of records at once, or one record."""
    _after: Callable[[Any], Any] | None = None

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many parts the records to learn from can be read in, independently of each other."""

    @abstractmethod
    def read_parts(self, numbers: Stream) -> Stream:
        """The records of the parts with these numbers, in an order that is always the same."""

    @abstractmethod
    def epoch(self, epoch: Any, seed: Any) -> Stream:
        """The records of one epoch in their order.

        Args:
            epoch: int64 tensor, from 0.
            seed: whole number or int64 tensor.
        """

    @abstractmethod
    def validation_records(self) -> Stream:
        """The held-out records, always in the same order."""

    @abstractmethod
    def decoder(self) -> Callable[..., tuple[Any, Any]]:
        """What makes inputs and labels of a batch of records, or of one record: see `decodes_batches`."""

    @abstractmethod
    def diagnose(self, *, until: float = math.inf) -> UsageError | None:
        """The first record that cannot be read or decoded, with its file, and what to do; None where all can.

        Args:
            until: on the monotonic clock, when the search ends.

        Raises:
            TimeoutError: nothing was found until then.
        """

    def map_inputs(self, encode: Callable[[Any], Any], input_spec: Any) -> Self:
        """This source with its batches of inputs encoded, by TensorFlow operations alone; can be shared as before.

        Args:
            input_spec: of what `encode` returns.
        """
        encoded = copy(self)
        before = self._after
        encoded._after = encode if before is None else lambda inputs: encode(before(inputs))
        encoded.input_spec = input_spec
        return encoded

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`."""
        return self.share_of_batches(batch=batch, seed=seed, first_step=first_step, share=Share(), offset=offset)

    @as_written
    def share_of_batches(self, *, batch: int, seed: Any, first_step: int, share: Share, offset: int = 0) -> Stream:
        """See `dtj_trainer.data.worker_shards.Divisible`."""
        first, end = share.rows(batch)
        records = self.records(seen=first_step * batch + offset, seed=seed)
        if share.workers > 1:
            records = records.batch(batch, drop_remainder=True).map(lambda part: part[first:end]).unbatch()
        return endless(self.batched(records, (end - first) // share.replicas))

    def records(self, *, seen: int, seed: Any) -> Stream:
        """Endless records, after those that were seen."""
        return after_seen(seen, examples=self.examples, epoch=lambda epoch: self.epoch(epoch, seed))

    def in_order(self) -> Stream:
        """The records to learn from, as they come, once."""
        return self.read_parts(tf.data.Dataset.range(self.parts))

    @as_written
    def unordered(self, *, rows: int) -> Stream:
        """Endless full batches in an order that is another one each time; any machine can work on any part."""
        numbers = tf.data.Dataset.range(self.parts).shuffle(self.parts).repeat()
        # A window that holds the data many times over would be filled before the first batch is given.
        window = min(WINDOW, self.examples)
        return endless(self.batched(self.read_parts(numbers).shuffle(window), rows))

    def batched(self, records: Stream, rows: int, *, full: bool = True) -> Stream:
        """Batches of decoded records; the last may be smaller unless all are to be full."""
        decode, encode = self.decoder(), self._after
        if self.decodes_batches:
            batches = records.batch(rows, drop_remainder=full).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        else:
            batches = records.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(rows, drop_remainder=full)
        if encode is None:
            return batches
        return batches.map(lambda inputs, labels: (encode(inputs), labels), num_parallel_calls=tf.data.AUTOTUNE)

    @as_written
    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        stream = self.batched(self.validation_records(), batch, full=False)
        return stream.prefetch(tf.data.AUTOTUNE).with_options(stream_options())


class Indexed(FullBatches):
    """A pipeline whose records are numbers, by which examples can be taken in any order: an epoch is a permutation."""

    training: npt.NDArray[np.int64]
    """The numbers of the examples to learn from."""
    validation_rows: npt.NDArray[np.int64]
    """The numbers of those to be judged by."""

    @property
    def parts(self) -> int:
        """Runs of neighbours."""
        return -(-len(self.training) // _PART)

    def read_parts(self, numbers: Stream) -> Stream:
        """See `FullBatches`."""
        training = tf.constant(self.training)
        return numbers.flat_map(
            lambda number: tf.data.Dataset.from_tensor_slices(training[number * _PART : (number + 1) * _PART])
        )

    def epoch(self, epoch: Any, seed: Any) -> Stream:
        """All numbers, in an order of the epoch's own."""
        order = permutation(len(self.training), seed=seed, epoch=epoch)
        return tf.data.Dataset.from_tensor_slices(tf.gather(tf.constant(self.training), order))

    def validation_records(self) -> Stream:
        """Numbers."""
        return tf.data.Dataset.from_tensor_slices(self.validation_rows)


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
        return stream.with_options(stream_options())

    def diagnose(self, *, until: float = math.inf) -> UsageError | None:
        """What is in memory can be read."""
        return None
