"""Records of many files, a chunk at a time. Imports TensorFlow."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dtj_trainer.data.files import Found
from dtj_trainer.data.formats.reader import Reader
from dtj_trainer.data.source import Stream
from dtj_trainer.data.validation_split import ValidationShare

FILES_AT_ONCE = 16
"""Read in turn. Not left to AUTOTUNE, which would give each machine an order of its own."""
CHUNK = 64
"""Records taken from a file in its turn. What must be done to single records is done to a chunk at once: a call for
each costs more than reading it (25 µs against 1)."""

Take = Callable[[Any, Any, Any], Any]
"""(number of the file, place of the first record, records [some]) -> what is wanted of them."""


def chunks(reader: Reader, files: Found, numbers: Stream, take: Take, *, size: int = CHUNK) -> Stream:
    """What `take` makes of each chunk of the files of these numbers, in turn, always in the same order."""
    paths = tf.constant(list(files.paths))

    def of_file(number: Any) -> Stream:
        parts = reader.records(paths[number]).batch(size).enumerate()
        # Each file begins one place later, so that files of one record each are divided as well.
        return parts.map(lambda part, records: take(number, number + part * size, records))

    return numbers.interleave(
        of_file, cycle_length=FILES_AT_ONCE, block_length=1, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def selected(reader: Reader, share: ValidationShare | None, *, for_validation: bool) -> Take:
    """Takes the records for training or, if `for_validation`, those for validation. Without a share it takes all."""

    def take(number: Any, place: Any, records: Any) -> Any:
        if share is not None:
            validation = share.mask(place + tf.range(tf.size(records), dtype=tf.int64))
            records = tf.boolean_mask(records, validation if for_validation else ~validation)
        return reader.prepare(records, number)

    return take
