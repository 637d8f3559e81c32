"""What the record files have in common: a reader knows one format. Imports TensorFlow."""

import codecs
import math
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from dtj_trainer.data.files import FileSet, fault_of, first_line
from dtj_trainer.data.gzip_files import compression
from dtj_trainer.data.source import Stream, searched
from dtj_trainer.errors import UsageError


class Reader(Protocol):
    """One format of files whose records are read one after the other; a record is a string."""

    decodes_batches: bool
    numbers: bool
    """Whether labels are numbers to be predicted, and not names of classes."""
    examples_are: Any
    """tf.TensorSpec of the inputs of one example."""

    def records(self, path: Any) -> Stream:
        """The records of one file, undecoded."""
        ...

    def prepare(self, records: Any, path: Any) -> Any:
        """What has to be done to records [some] of a file while it is known whose they are; drops empty ones."""
        ...

    def parse(self, records: Any) -> tuple[Any, Any]:
        """Takes records apart: a batch, or one where `decodes_batches` is not set.

        Returns:
            The inputs; and the labels, string [batch] of classes, or float32 [batch] of numbers.
        """
        ...

    def explain(self, record: bytes) -> str | None:
        """What is wrong with a record that `parse` refuses, in words for a person; None where that is not known."""
        ...

    def describe(self) -> str:
        """What becomes the input, for a person."""
        ...

    def check(self, paths: Sequence[str]) -> None:
        """Looks at the beginnings of files that were not looked at yet.

        Raises:
            UsageError: a file does not fit the first.
        """
        ...


def find_fault(
    reader: Reader,
    files: FileSet,
    parse: Callable[[Any], tuple[Any, Any]] | None = None,
    *,
    until: float = math.inf,
) -> UsageError | None:
    """The first record that cannot be read or parsed, as the error to raise; None where all can.

    Args:
        parse: the reader's, or what also knows the classes.
        until: on the monotonic clock, when the search ends.

    Raises:
        TimeoutError: nothing was found until then.
    """
    parse = parse or reader.parse
    for path in files.paths:
        row, record = 0, None
        if reader.decodes_batches:
            # Record by record, the calls would take longer than the reading.
            try:
                for records in searched(reader.records(path).batch(_TOGETHER), until):
                    if tf.size(prepared := reader.prepare(records, tf.constant(path))):
                        parse(prepared)
                    row += int(tf.size(records))
                continue
            except tf.errors.OpError:
                pass
        try:
            for record in searched(reader.records(path).skip(row), until):
                row += 1
                prepared = reader.prepare(record[tf.newaxis], tf.constant(path))
                if tf.size(prepared):
                    parse(prepared if reader.decodes_batches else prepared[0])
        # A count that runs ahead where reading itself fails: the record after the last good one.
        except tf.errors.InvalidArgumentError as error:
            reason = (record is not None and reader.explain(record.numpy())) or first_line(error)
            return UsageError(f"{path}: record {max(1, row)}: {reason}; fix it, or remove it")
        except tf.errors.OpError as error:
            return fault_of(
                path, error, f"record {row + 1} cannot be read ({first_line(error)}); fix the file, or remove it"
            )
    return None


_TOGETHER = 64
_MOST = 20


def shortened(names: Sequence[str]) -> str:
    """At most 20 names, and how many there are if these are not all."""
    return ", ".join(names[:_MOST]) + (f", ... ({len(names)} in all)" if len(names) > _MOST else "")


LOOKED_AT = 200
"""Records at the beginning of the first file that say what all are like."""
LARGEST = float(tf.float32.max)
_SEEN = 1e-3
"""The part of the range of values by which rounding is spoken of."""


def rounded(values: Sequence[float]) -> str:
    """How far float32 is off, for a person, where that is a part of the differences that can be seen; else nothing."""
    exact = np.array([value for value in values if abs(value) < LARGEST], np.float64)
    error = float(np.abs(exact - exact.astype(np.float32)).max(initial=0.0))
    return f" (rounded by up to {error:g})" if len(exact) and error > _SEEN * float(np.ptp(exact)) > 0 else ""


def named(labels: Any) -> Any:
    """Names of classes, without the spaces around them; the graph ends where one is blank."""
    labels = tf.strings.strip(labels)
    return _where(~tf.reduce_any(tf.strings.regex_full_match(labels, _BLANK)), labels, "an empty label")


def is_blank(label: str) -> bool:
    """Whether nothing of it can be seen."""
    return all(letter.isspace() or unicodedata.category(letter) in ("Zs", "Zl", "Zp", "Cf") for letter in label)


def decimal(texts: Any) -> Any:
    """Texts that are to be numbers; the graph ends where one is hexadecimal, which TensorFlow reads, unlike others."""
    return _where(~tf.reduce_any(tf.strings.regex_full_match(texts, HEXADECIMAL)), texts, "no number")


_BLANK = r"[\s\p{Z}\p{Cf}]*"
HEXADECIMAL = r"\s*[+-]?0[xX].*"


def _where(condition: Any, values: Any, message: str) -> Any:
    checked = tf.debugging.assert_equal(condition, True, message=message)
    with tf.control_dependencies([checked] if checked is not None else []):
        return tf.identity(values)


BYTE_ORDER_MARK = "\ufeff"
"""What some programs begin a file in UTF-8 with: no part of the text."""


def lines(path: Any) -> Stream:
    """The lines of a file of text, compressed or not."""
    return tf.data.TextLineDataset(path, compression_type=compression(path))


def check_utf8(line: bytes, path: str) -> None:
    """That a file that begins with this line is not of wide characters.

    Raises:
        UsageError: it is.
    """
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line:
        raise UsageError(f"{path}: its text is UTF-16 or no text at all; save it as UTF-8")
