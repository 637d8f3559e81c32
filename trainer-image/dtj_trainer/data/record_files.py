"""A source over files that are read record by record: TFRecord, CSV, text. Imports TensorFlow."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.data.files import FileSet
from dtj_trainer.data.formats.reader import Reader, find_fault
from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.gzip_files import is_compressed
from dtj_trainer.data.held_out_examples import ValidationShare
from dtj_trainer.data.shuffling import permutation, shuffled
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

FILES_AT_ONCE = 16
"""Read in turn. Not left to AUTOTUNE, which would give each machine an order of its own."""
CHUNK = 64
"""Records taken from a file in its turn. What must be done to single records is done to a chunk at once: a call for
each costs more than reading it (25 µs against 1)."""

Take = Callable[[Any, Any, Any, Any], Any]
"""(number of the file, its path, place of the first record, records [some]) -> what is wanted of them."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What record files hold. Counts are of records, file by file."""

    training: tuple[int, ...]
    validation: tuple[int, ...]
    classes: tuple[str, ...]


class RecordFiles(FullBatches):
    """A source over record files, of which a survey was made.

    An epoch is the files in an order of its own, read in turn, and then each next record drawn from a window.
    """

    exact_inputs = True

    def __init__(
        self,
        reader: Reader,
        found: FileSet,
        validation: FileSet | None,
        share: ValidationShare | None,
        survey: Survey,
    ) -> None:
        """Args:
        validation: the files to evaluate on; None: this share of `found`.
        """
        self._reader = reader
        self._found, self._validation_files = found, validation
        self._share = share
        self.decodes_batches = reader.decodes_batches
        self.name = found.where
        self.classes = survey.classes
        self.examples, self.validation_examples = sum(survey.training), sum(survey.validation)
        self.counts = str((survey.training, survey.validation))
        self.input_spec = tf.TensorSpec((None, *reader.examples_are.shape), reader.examples_are.dtype)

    def epoch(self, epoch: Any, seed: Any) -> Stream:
        """Records, shuffled."""
        numbers = permutation(len(self._found.paths), seed=seed, epoch=epoch)
        records = self.read_parts(tf.data.Dataset.from_tensor_slices(numbers))
        return shuffled(records, seed=seed, epoch=epoch)

    @property
    def file_bytes(self) -> int:
        """What the files hold, roughly: a compressed one about four times its size."""
        files = [self._found, *([self._validation_files] if self._validation_files else [])]
        return sum(
            size * (4 if is_compressed(p) else 1) for f in files for p, size in zip(f.paths, f.sizes, strict=True)
        )

    @property
    def parts(self) -> int:
        """Files."""
        return len(self._found.paths)

    def read_parts(self, numbers: Stream) -> Stream:
        """See `FullBatches`."""
        return self._read(self._found, numbers, for_validation=False)

    def validation_records(self) -> Stream:
        """See `FullBatches`."""
        files = self._validation_files or self._found
        return self._read(files, tf.data.Dataset.range(len(files.paths)), for_validation=True)

    def _read(self, files: FileSet, numbers: Stream, *, for_validation: bool) -> Stream:
        return chunks(
            self._reader, files, numbers, selected(self._reader, self._share, for_validation=for_validation)
        ).unbatch()

    def decoder(self) -> Callable[..., tuple[Any, Any]]:
        """Records -> inputs and labels."""
        return self._decode

    def _decode(self, records: Any) -> tuple[Any, Any]:
        inputs, labels = self._reader.parse(records)
        if self._reader.numbers:
            return inputs, labels
        numbers = tf.reshape(number_of(tf.reshape(labels, [-1]), self.classes), tf.shape(labels))
        return inputs, tf.ensure_shape(numbers, labels.shape)

    def describe(self) -> str:
        """What the inputs are, for a person."""
        return self._reader.describe()

    def diagnose(self, *, until: float = math.inf) -> UsageError | None:
        """The first record that cannot be read or decoded, as the error to raise; None where all can."""
        for files in filter(None, (self._found, self._validation_files)):
            if fault := find_fault(self._reader, files, self._decode, until=until):
                return fault
        return None


def chunks(reader: Reader, files: FileSet, numbers: Stream, take: Take, *, size: int = CHUNK) -> Stream:
    """What `take` makes of each chunk of the files of these numbers, in turn, always in the same order."""
    paths = tf.constant(list(files.paths))

    def of_file(number: Any) -> Stream:
        parts = reader.records(paths[number]).batch(size).enumerate()
        # Each file begins one place later, so that files of one record each are divided as well.
        return parts.map(lambda part, records: take(number, paths[number], number + part * size, records))

    return numbers.interleave(
        of_file, cycle_length=FILES_AT_ONCE, block_length=1, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def selected(reader: Reader, share: ValidationShare | None, *, for_validation: bool) -> Take:
    """Takes the records for training or, if `for_validation`, those for validation. Without a share it takes all."""

    def take(_: Any, path: Any, place: Any, records: Any) -> Any:
        if share is not None:
            validation = share.mask(place + tf.range(tf.size(records), dtype=tf.int64))
            records = tf.boolean_mask(records, validation if for_validation else ~validation)
        return reader.prepare(records, path)

    return take


def number_of(values: Any, names: Sequence[str]) -> Any:
    """string [batch] -> int64 [batch]: the place of each value among the names.

    No lookup table: those of parameter servers live elsewhere.

    Raises:
        InvalidArgumentError: when it runs, for a value that is not among them.
    """
    same = tf.equal(values[:, tf.newaxis], tf.constant(list(names), tf.string)[tf.newaxis, :])
    known = tf.debugging.assert_equal(tf.reduce_any(same, axis=1), True, message="a label that was not seen before")
    with tf.control_dependencies([known] if known is not None else []):
        return tf.argmax(tf.cast(same, tf.int32), axis=1)
