"""Text, an example a line: `label<TAB>text`, or a directory for each class. Imports TensorFlow."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import tensorflow as tf

from dtj_trainer.data.files import FileSet, check_classes, class_folders, directory_of
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
_DIRECTORY = "(?s)^(?:.*/)?([^/]*)/[^/]*$"
"""Of the path of a file, its directory's name."""


class TextReader:
    """A `dtj_trainer.data.formats.reader.Reader` of text; an example is one string, as it stands in the file."""

    decodes_batches = True

    def __init__(self, found: FileSet, *, option: str, numbers: bool) -> None:
        """Looks at the first lines: if most have no tab, the directories are the classes.

        Raises:
            UsageError: neither tabs nor directories, or text of wide characters.
        """
        self.numbers = numbers
        self.examples_are = tf.TensorSpec((), tf.string)
        every = ((path, line) for path in found.paths for line in self.records(path).as_numpy_iterator())
        seen = [*islice(((path, line) for path, line in every if line.strip()), LOOKED_AT)]
        path, first = seen[0] if seen else (found.paths[0], b"")
        check_utf8(first, path)
        self._classes: tuple[str, ...] = ()
        self._where = found.where
        self._by_directory = 2 * sum(_TAB.encode() in line for _, line in seen) <= len(seen)
        if self._by_directory:
            if len({directory_of(one) for one in found.paths}) < 2:
                raise UsageError(
                    f"{path}: its lines have no tab; write label<TAB>text, or give a directory with one directory for "
                    "each class"
                )
            self._classes = class_folders(found, option=option)
        self._rounded = self._look_for_rounding(line for _, line in seen) if numbers else ""

    def records(self, path: Any) -> Stream:
        """The lines of one file."""
        return lines(path)

    def prepare(self, records: Any, path: Any) -> Any:
        """Drops empty lines and byte order marks, and puts the class in front where the directory says it."""
        records = tf.strings.regex_replace(records, f"^{BYTE_ORDER_MARK}", "")
        records = tf.boolean_mask(records, tf.not_equal(tf.strings.length(tf.strings.strip(records)), 0))
        if not self._by_directory:
            return records
        return tf.strings.join([tf.strings.regex_replace(path, _DIRECTORY, r"\1") + _TAB, records])

    def parse(self, records: Any) -> tuple[Any, Any]:
        """What stands behind the first tab, and what before it."""
        records = tf.strings.unicode_transcode(records, "UTF-8", "UTF-8", errors="strict")
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
        try:
            label, tab, _ = record.decode().partition(_TAB)
        except UnicodeDecodeError:
            return "it is no UTF-8 (save the file as UTF-8)"
        if not tab and not self._by_directory:
            return "a line without a tab; write label<TAB>text"
        if not self._by_directory and is_blank(label):
            return "its label is empty; write label<TAB>text"
        if self.numbers and not self._by_directory:
            return f"its label is {label.strip()[:40]!r}, and this task predicts numbers"
        return None

    def describe(self) -> str:
        """See `Reader`."""
        return "lines of text, " + (
            "of the class that is their directory" if self._by_directory else f"behind a label{self._rounded} and a tab"
        )

    def _look_for_rounding(self, seen: Iterable[bytes]) -> str:
        values = []
        for line in seen:
            with suppress(ValueError):
                values.append(float(line.partition(_TAB.encode())[0]))
        return rounded(values)

    def check(self, paths: Sequence[str]) -> None:
        """That all are in directories of classes, where these are the labels; lines have no header."""
        if self._by_directory:
            check_classes(paths, self._classes, self._where)
