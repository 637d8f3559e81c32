"""Which examples are held out, and whether they are the same, in the same order, each time they are read.

What is held out of the data is known by its place. So examples that come in another order would be trained on in one
reading, and evaluated on in the next. Each example is hashed as it is read, in the graph of tf.data, and the digest of
each complete reading is compared with that of the first one. Imports TensorFlow.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tensorflow as tf

from dtj_trainer.autograph import as_written
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.errors import DataChanged

BATCH = 512
"""Examples that are read at once where no model takes them."""
_WRAP = 2**64
_PARTS = 1000


@dataclass(frozen=True)
class ValidationShare:
    """A share of the places 0, 1, 2, …: one of each run of 1/share places, so files sorted by class are no harm.

    Which one of a run is drawn from the run's number, so that data with a rhythm of their own are no harm either.
    """

    share: float
    """Above 0, at most 0.5; counted in thousandths."""

    def mask(self, places: Any) -> Any:
        """bool, of the shape of `places` (int64): whether each is held out."""
        wanted = max(1, round(self.share * _PARTS))
        run = places * wanted // _PARTS
        start, end = ((number * _PARTS + wanted - 1) // wanted for number in (run, run + 1))
        drawn = tf.strings.to_hash_bucket_fast(tf.strings.as_string(run), 2**31) % (end - start)
        return tf.equal(places, start + drawn)


@dataclass(frozen=True, kw_only=True)
class Digest:
    """Of the examples of a reading: sums, modulo 2**64, of the fingerprints of all examples."""

    examples: int = 0
    """How many there were."""
    inputs: int = 0
    """Of the inputs at their places."""
    members: int = 0
    """Of the inputs, in any order."""
    labels: int = 0
    """Of the rest, such as labels and weights, at their places."""

    @classmethod
    def of(cls, numbers: Any) -> Self:
        """What `numbers` gave."""
        examples, inputs, members, labels = (int(each) % _WRAP for each in numbers)
        return cls(examples=examples, inputs=inputs, members=members, labels=labels)

    @property
    def numbers(self) -> Any:
        """int64 [4], for a checkpoint; the number of examples first."""
        return np.array([self.examples, self.inputs, self.members, self.labels], np.uint64).view(np.int64)

    def __add__(self, other: "Digest") -> "Digest":
        return Digest.of(self.numbers.astype(object) + other.numbers.astype(object))

    def is_in_order_of(self, other: "Digest", *, inputs_stay: bool) -> bool:
        """Whether the examples came in the same order.

        Args:
            inputs_stay: whether inputs must have the same bits. Else inputs that are all different are no sign, as
                on another processor, which may round in another way; labels are.
        """
        if (self.examples, self.labels) != (other.examples, other.labels):
            return False
        if self.inputs == other.inputs:
            return True
        return not inputs_stay and self.members != other.members


class Reading:
    """One reading of all held-out examples, in batches; also of a part of the batches, where workers divide them."""

    def __init__(self, batches: Stream, *, batch: int, takes: Callable[[Any], Any] | None = None) -> None:
        """Args:
        batches: full ones of this many examples; the last may be smaller.
        takes: number of a batch, int64 -> bool: whether this worker evaluates it. All are read, and hashed.
        """
        self._batches = iter(_hashed(batches, batch, takes))
        self._digest = Digest()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # `next` ends with an error, of which TensorFlow logs a traceback where a chief drives the hosts of a TPU slice.
        while (following := self._batches.get_next_as_optional()).has_value():
            taken, examples, sums = following.get_value()
            self._digest += Digest.of(sums.numpy())
            if taken:
                return examples
        raise StopIteration

    def finish(self) -> Digest:
        """Reads what is left; the digest of all."""
        for _ in self:
            pass
        return self._digest


class HeldOut:
    """The held-out examples of a run, each reading of which has to be the first one again."""

    def __init__(self, data: Source, origin: str) -> None:
        """Args:
        origin: what the user gave them by, such as an option and its value.
        """
        self.data = data
        self._origin = origin
        # A user's dataset is read before the training. Files are read before it if there are to be checkpoints, else
        # the first evaluation is the first reading.
        self._first: Digest | None = getattr(data, "validation_digest", None)
        with tf.device("CPU:0"):
            self.variable = tf.Variable(Digest().numbers, trainable=False)
        """int64 [4]: the digest of the first reading, as a checkpoint holds it; zeros: there was none."""

    def reading(self, *, batch: int, takes: Callable[[Any], Any] | None = None) -> Reading:
        """Begins to read; see `Reading`."""
        return Reading(self.data.validation(batch=batch), batch=batch, takes=takes)

    def has_changed(self, digest: Digest) -> bool:
        """Whether this complete reading differs from the first one."""
        if self._first is None:
            self._first = digest
        return not digest.is_in_order_of(self._first, inputs_stay=True)

    def refresh(self) -> None:
        """Puts the digest into the variable; before each checkpoint."""
        if self._first is not None:
            self.variable.assign(self._first.numbers)

    def differs_from_checkpoint(self, *, writes: bool = False) -> bool:
        """Whether the variable, just restored, has the digest of other examples. May read them, once.

        Args:
            writes: whether this task writes checkpoints, each of which is to hold the digest.
        """
        saved = Digest.of(self.variable.numpy())
        if self._first is None and (saved.examples or (writes and self.data.validation_examples)):
            self._first = self.reading(batch=BATCH).finish()
        if not saved.examples or self._first is None:
            return False
        # Another machine may decode a picture, or compute, in another way. It reads the same text and numbers.
        exact = getattr(self.data, "exact_inputs", False)
        return not self._first.is_in_order_of(saved, inputs_stay=exact)

    def changed(self, where: str = "") -> DataChanged:
        """What to raise.

        Args:
            where: ` on worker 1`, or nothing.
        """
        return DataChanged(
            f"{self._origin}: the held-out examples changed{where} since they were first read, so that the model would "
            "be judged by examples that it was trained on; keep the data as they are while the job runs, in a fixed "
            "order: shuffle(…, seed=…, reshuffle_each_iteration=False)"
        )

    def not_those_of_checkpoint(self, checkpoint: str | None, where: str = "") -> DataChanged:
        """What to raise; see `changed`."""
        return DataChanged(
            f"{self._origin}: the held-out examples{where} are not those of checkpoint {checkpoint}, whose model may "
            "have been trained on them; give the data and options of the run that wrote it, or an empty "
            "--checkpoint-dir"
        )


@as_written
def _hashed(batches: Stream, batch: int, takes: Callable[[Any], Any] | None) -> Any:
    """Batches as (whether this worker takes it, the batch or nothing of it, uint64 [4]: see `Digest`)."""

    def hashed(number: Any, examples: Any) -> Any:
        first, *rest = examples if isinstance(examples, tuple) else (examples,)
        inputs, labels = _fingerprints([first]), _fingerprints(rest or [first])
        count = tf.shape(inputs, tf.int64)[0]
        places = tf.bitcast(number * batch + tf.range(count), tf.uint8)
        sums = tf.stack(
            [
                tf.cast(count, tf.uint64),
                tf.reduce_sum(_numbers(tf.concat([places, inputs], axis=1))),
                tf.reduce_sum(tf.bitcast(inputs, tf.uint64)),
                tf.reduce_sum(_numbers(tf.concat([places, labels], axis=1))),
            ]
        )
        if takes is None:
            return tf.constant(True), examples, sums
        taken = takes(number)
        kept = tf.where(taken, count, tf.zeros_like(count))
        return taken, tf.nest.map_structure(lambda part: part[:kept], examples), sums

    return batches.enumerate().map(hashed).prefetch(tf.data.AUTOTUNE)


def _fingerprints(values: Any) -> Any:
    """Of each example of a batch: uint8 [batch, 8]."""
    parts = [
        _of_rows(part) if isinstance(part, tf.RaggedTensor) else tf.fingerprint(part)
        for part in tf.nest.flatten(values)
    ]
    return tf.fingerprint(tf.concat(parts, axis=1))


def _of_rows(ragged: Any) -> Any:
    """Of each row of a ragged tensor, which does not depend on the other rows: uint8 [rows, 8]."""
    found = tf.fingerprint(ragged.flat_values)
    for splits in reversed(ragged.nested_row_splits):
        rows = tf.RaggedTensor.from_row_splits(found, splits, validate=False)
        owners = tf.cast(rows.value_rowids(), tf.int64)
        starts = tf.cast(tf.gather(rows.row_starts(), owners), tf.int64)
        places = tf.bitcast(tf.range(tf.shape(found, tf.int64)[0]) - starts, tf.uint8)
        count = rows.nrows(tf.int64)
        sums = tf.math.unsorted_segment_sum(_numbers(tf.concat([places, found], axis=1)), owners, count)
        lengths = tf.bitcast(tf.cast(rows.row_lengths(), tf.int64), tf.uint8)
        found = tf.fingerprint(tf.concat([tf.bitcast(sums, tf.uint8), lengths], axis=1))
    return found


def _numbers(content: Any) -> Any:
    """uint8 [rows, any] -> uint64 [rows]."""
    return tf.bitcast(tf.fingerprint(content), tf.uint64)
