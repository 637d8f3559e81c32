"""Text, an example a line: `label<TAB>text`, or a directory for each class. Imports TensorFlow."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from dtj_trainer.data.files import FileSet, class_folders
from dtj_trainer.data.formats.reader import (
    BYTE_ORDER_MARK,
    LOOKED_AT,
    check_utf8,
    decimal,
    is_blank,
    lines,
    named,
    rounded,
)
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

_TAB = "\t"


class TextReader:
    """A `dtj_trainer.data.formats.reader.Reader` of text; an example is one string, as it stands in the file."""

    decodes_batches = True

    def __init__(self, found: FileSet, *, option: str, numbers: bool) -> None:
        """Looks at the first line that is not blank: without a tab in it, the directories are the classes.

        Raises:
            UsageError: no text, or neither tabs nor directories.
        """
        self.numbers = numbers
        self.examples_are = tf.TensorSpec((), tf.string)
        every = ((path, line) for path in found.paths for line in self.records(path).as_numpy_iterator())
        path, first = next(((path, line) for path, line in every if line.strip()), (found.paths[0], b""))
        check_utf8(first, path)
        self._labels: Sequence[str] | None = None
        if _TAB.encode() not in first:
            try:
                class_folders(found, option=option)
            except UsageError:
                raise UsageError(
                    f"{path}: its first line has no tab; write label<TAB>text, "
                    "or give a directory with one directory for each class"
                ) from None
            self._labels = [found.class_of(path) for path in found.paths]

        self._rounded = self._look_for_rounding(path) if numbers else ""

    def records(self, path: Any) -> Stream:
        """The lines of one file."""
        return lines(path)

    def prepare(self, records: Any, number: Any) -> Any:
        """Drops empty lines and byte order marks, and puts the class in front where the directory says it."""
        records = tf.strings.regex_replace(records, f"^{BYTE_ORDER_MARK}", "")
        records = tf.boolean_mask(records, tf.not_equal(tf.strings.length(tf.strings.strip(records)), 0))
        if self._labels is None:
            return records
        label = tf.gather(tf.constant(self._labels), number)
        return tf.strings.join([label + _TAB, records])

    def parse(self, records: Any) -> tuple[Any, Any]:
        """What stands behind the first tab, and what before it."""
        parts = tf.strings.split(records, _TAB, maxsplit=1)
        whole = tf.debugging.assert_equal(parts.row_lengths(), tf.constant(2, tf.int64), message="a line without a tab")
        with tf.control_dependencies([whole] if whole is not None else []):
            pairs = parts.to_tensor(shape=[None, 2])
        labels = named(pairs[:, 0])
        if self.numbers:
            labels = tf.debugging.check_numerics(tf.strings.to_number(decimal(labels)), "a label")
        return pairs[:, 1], labels

    def explain(self, record: bytes) -> str | None:
        """See `Reader`."""
        label, tab, _ = record.decode(errors="replace").partition(_TAB)
        if not tab and self._labels is None:
            return "a line without a tab; write label<TAB>text"
        if self._labels is None and is_blank(label):
            return "its label is empty; write label<TAB>text"
        if self.numbers and self._labels is None:
            return f"its label is {label.strip()[:40]!r}, and this task predicts numbers"
        return None

    def describe(self) -> str:
        """See `Reader`."""
        return "lines of text, " + (
            "of the class that is their directory" if self._labels else f"behind a label{self._rounded} and a tab"
        )

    def _look_for_rounding(self, path: str) -> str:
        values = []
        for line in self.records(path).take(LOOKED_AT).as_numpy_iterator():
            with suppress(ValueError):
                values.append(float(line.partition(_TAB.encode())[0]))
        return rounded(values)

    def check(self, paths: Sequence[str]) -> None:
        """Lines have no header."""
