"""From what files call a class to its number. No lookup tables: those of parameter servers live elsewhere."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import UsageError

MAX_CLASSES = 1000


def in_order(values: Iterable[str]) -> tuple[str, ...]:
    """Distinct values: by their size where all are whole numbers, else by the alphabet."""
    distinct = set(values)
    if all(value.removeprefix("-").isdecimal() for value in distinct):
        return tuple(sorted(distinct, key=int))
    return tuple(sorted(distinct))


def check_alike(values: Iterable[str], what: str) -> None:
    """That no two distinct values look alike: they are the same, written in two ways.

    Args:
        what: they are, for the error.

    Raises:
        UsageError: two do.
    """
    seen: dict[str | float, str] = {}
    distinct = sorted(set(values))
    numbers = [_number(value) for value in distinct]
    for value, number in zip(distinct, numbers, strict=True):
        # Letters of two parts and of one, spaces of other kinds, and marks that nobody sees.
        text = "".join(one for one in unicodedata.normalize("NFC", value) if unicodedata.category(one) != "Cf")
        same = seen.setdefault(" ".join(text.split()) if None in numbers else number or 0.0, value)
        if same != value:
            raise UsageError(f"{what} {same!a} and {value!a} are both there; write them in one way")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def number_of(values: Any, names: Sequence[str]) -> Any:
    """string [batch] -> int64 [batch]: the place of each value among the names.

    Raises:
        InvalidArgumentError: when it runs, for a value that is not among them.
    """
    same = tf.equal(values[:, tf.newaxis], tf.constant(list(names), tf.string)[tf.newaxis, :])
    known = tf.debugging.assert_equal(tf.reduce_any(same, axis=1), True, message="a label that was not seen before")
    with tf.control_dependencies([known] if known is not None else []):
        return tf.argmax(tf.cast(same, tf.int32), axis=1)
