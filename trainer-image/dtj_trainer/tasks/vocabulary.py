"""Text as numbers: which words a model knows, and how a text becomes a row of their numbers. Imports TensorFlow.

Standardised as Keras' TextVectorization does it by default (lower case, punctuation left out, cut at white space).
Words are looked up by their hash in a sorted constant: a lookup table is a resource, which would have to be made
again on each worker of a ParameterServer job and carried next to the exported model.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

PADDING, UNKNOWN = 0, 1
_FIRST_WORD = 2
_HASHES = 2**62
_PUNCTUATION = f"[{re.escape(string.punctuation)}]"


def words_of(texts: Any) -> Any:
    """The words of each text, a ragged string tensor [batch, (words)] of a string tensor [batch]."""
    return tf.strings.split(tf.strings.regex_replace(tf.strings.lower(texts), _PUNCTUATION, ""))


class Vocabulary:
    """Words by number: 0 is padding, 1 an unknown word, and from 2 on the known ones."""

    def __init__(self, words: Iterable[bytes]) -> None:
        """Args:
        words: standardised, each once, the most frequent first.
        """
        self.words = tuple(words)
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(self.words, tf.string), _HASHES).numpy()
        order = np.argsort(hashes, kind="stable")
        self._hashes = np.concatenate([hashes[order], [np.int64(_HASHES)]])
        self._numbers = np.concatenate([order + _FIRST_WORD, [UNKNOWN]]).astype(np.int32)

    def __len__(self) -> int:
        """Numbers in use."""
        return len(self.words) + _FIRST_WORD

    def text(self) -> bytes:
        """A line for each number from 0 on: that of padding is empty, and `[UNK]` stands for the unknown words."""
        return b"\n".join([b"", b"[UNK]", *self.words, b""])

    def encode(self, texts: Any, *, length: int) -> Any:
        """The numbers of the first `length` words, int32 [batch, length], padded in front.

        In front, so that a recurrent layer ends on the last word and needs no mask.
        """
        words = words_of(texts)[:, :length]
        hashes = tf.strings.to_hash_bucket_fast(words.flat_values, _HASHES)
        places = tf.searchsorted(self._hashes, hashes)
        known = tf.equal(tf.gather(self._hashes, places), hashes)
        numbers = words.with_flat_values(tf.where(known, tf.gather(self._numbers, places), UNKNOWN))
        # Padding goes to the end of a row: so the rows are turned around, padded, and turned back.
        turned = numbers[:, ::-1].to_tensor(default_value=PADDING, shape=(None, length))
        return tf.reverse(turned, axis=[1])


def most_frequent(batches: Iterable[Any], *, most: int) -> list[bytes]:
    """The words of all texts, string arrays [batch], most frequent first and then by letters: at most this many."""
    counts: Counter[bytes] = Counter()
    for texts in batches:
        counts.update(words_of(tf.constant(texts)).flat_values.numpy().tolist())
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]
