"""Which records of a file are held out, where a share of them is to be: a pure function of their place."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

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
