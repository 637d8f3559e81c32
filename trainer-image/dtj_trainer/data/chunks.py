"""Records of many files, a chunk at a time, and which of them are held out. Imports TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.data.files import Found
from dtj_trainer.data.formats.reader import Reader
from dtj_trainer.data.source import Stream

FILES_AT_ONCE = 16
"""Read in turn. Not left to AUTOTUNE, which would give each machine an order of its own."""
CHUNK = 64
"""Records taken from a file in its turn. What must be done to single records is done to a chunk at once: a call for
each costs more than reading it (25 µs against 1)."""

_PARTS = 1000

Take = Callable[[Any, Any, Any], Any]
"""(number of the file, place of the first record, records [some]) -> what is wanted of them."""


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
