"""CSV files with a header, of numbers. Lines are decoded in batches. Imports TensorFlow.

A quoted cell may hold commas, but no line break: lines are what is shuffled and divided.
"""

import csv
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.config.data import DataConfig
from dtj_trainer.data.files import FileSet
from dtj_trainer.data.formats.reader import (
    BYTE_ORDER_MARK,
    LARGEST,
    LOOKED_AT,
    check_utf8,
    decimal,
    is_blank,
    lines,
    named,
    rounded,
    shortened,
)
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError
from dtj_trainer.process.watchdog import moving


class CsvReader:
    """A `dtj_trainer.data.formats.reader.Reader` of CSV files: all columns but the label are numbers."""

    decodes_batches = True

    def __init__(self, config: DataConfig, found: FileSet, *, numbers: bool) -> None:
        """Learns the columns from the beginning of the first file that has rows.

        Raises:
            UsageError: no header, or a column that is not there or cannot be used.
        """
        self.numbers = numbers
        self._first, head, rows = _beginning(found.paths)
        self._header = _names(head)
        if _is_open(head):
            raise UsageError(f"{self._first}: its first line: {_broken(self._header[-1], self._header[-1])}")
        self._label = self._column("--label-column", config.label)
        wanted = config.columns or [name for name in self._header if name != config.label]
        self._inputs = sorted(self._column("--columns", name) for name in wanted)
        if self._label in self._inputs:
            raise UsageError(f"--columns: {config.label} is the label (--label-column); name the others")
        if not self._inputs:
            raise UsageError(
                f"{self._first}: no column but {config.label} (--label-column); there is nothing to learn from"
            )
        for column in (self._label, *self._inputs):
            if not self._header[column] or self._header.count(self._header[column]) > 1:
                raise UsageError(
                    f"{self._first}: column {column + 1} has "
                    f"{f'the name {self._header[column]} of another' if self._header[column] else 'no name'}; "
                    "name each, or leave it out with --columns"
                )
        self._numeric = sorted({*self._inputs, self._label}) if numbers else self._inputs
        self._rounded = {
            i: rounded([n for row in rows if i < len(row) and (n := _number(row[i])) is not None])
            for i in self._numeric
        }
        self.examples_are = tf.TensorSpec((len(self._inputs),), tf.float32)

    def records(self, path: Any) -> Stream:
        """Lines behind the header."""
        return lines(path).skip(1)

    def prepare(self, records: Any, path: Any) -> Any:
        """Drops empty lines."""
        return tf.boolean_mask(records, tf.not_equal(tf.strings.length(records), 0))

    def parse(self, records: Any) -> tuple[Any, Any]:
        """Cells of the columns that are used."""
        # All are decoded: with `select_cols`, TensorFlow takes a row that has more cells than the header.
        cells = tf.io.decode_csv(records, [self._kind(column) for column in range(len(self._header))])
        # TensorFlow reads 0x1A as a number. A few lines have such a text at all.
        odd = tf.boolean_mask(records, tf.strings.regex_full_match(records, r"(?s).*0[xX].*"))
        texts = tf.io.decode_csv(odd, [tf.constant([""])] * len(self._header))
        with tf.control_dependencies([decimal(texts[column]) for column in self._numeric]):
            label = tf.identity(cells[self._label])
        inputs = tf.stack([tf.debugging.check_numerics(cells[column], "no number") for column in self._inputs], axis=1)
        return inputs, tf.debugging.check_numerics(label, "no number") if self.numbers else named(label)

    def describe(self) -> str:
        """See `Reader`."""
        names = [self._header[i] + self._rounded[i] for i in self._inputs]
        label = self._rounded.get(self._label)
        return f"columns {shortened(names)}" + (f"; label {self._header[self._label]}{label}" if label else "")

    def check(self, paths: Sequence[str]) -> None:
        """That all files have the header of the first."""
        heads = tf.data.Dataset.from_tensor_slices(list(paths)).interleave(
            lambda path: lines(path).take(1).map(lambda line: (path, line)), num_parallel_calls=tf.data.AUTOTUNE
        )
        for path, line in moving(heads.as_numpy_iterator()):
            if _names(line) != self._header:
                raise UsageError(
                    f"{path.decode()}: its header is not that of {self._first}; "
                    "all files of a job need the same columns"
                )

    def explain(self, record: bytes) -> str | None:
        """See `Reader`."""
        cells = _cells(record)
        if _is_open(record):
            return _broken(self._header[len(cells) - 1] if len(cells) <= len(self._header) else len(cells), cells[-1])
        if len(cells) != len(self._header):
            return f"it has {len(cells)} cells, and the header has {len(self._header)}"
        for column in sorted({*self._inputs, self._label}):
            cell, is_label = cells[column].strip(" \t"), column == self._label
            name = f"column {self._header[column]}" + (" (--label-column)" if is_label else "")
            if is_blank(cell):
                return f"{name} is empty"
            if column in self._numeric and not _is_finite(cell):
                remedy = "this task predicts numbers" if is_label else "leave out columns of words with --columns"
                return f"{name} is {cell[:40]!r}, and not a number ({remedy})"
        return None

    def _kind(self, column: int) -> Any:
        """What decode_csv wants: an empty tensor of the type, since no cell that is used may be empty."""
        if column in self._numeric:
            return tf.constant([], tf.float32)
        return tf.constant([] if column == self._label else [""], tf.string)

    def _column(self, option: str, name: str) -> int:
        if name not in self._header:
            raise UsageError(f"{option}={name}: no such column in {self._first}; it has {shortened(self._header)}")
        return self._header.index(name)


def _beginning(paths: Sequence[str]) -> tuple[str, bytes, list[list[str]]]:
    """The first file that has rows, its first line, and some of its rows.

    Raises:
        UsageError: there is none, or it has no header.
    """
    for path in paths:
        head, *rest = [*lines(path).take(LOOKED_AT + 1).as_numpy_iterator()] or [b""]
        check_utf8(head, path)
        if rows := [_cells(line) for line in rest if line.strip()]:
            if not head.strip():
                raise UsageError(f"{path}: its first line is empty; a csv file needs a header and rows")
            return path, head, rows
    lacks = "a header only" if head.strip() else "empty"
    raise UsageError(f"{path}: {lacks}; a csv file needs a header and rows")


def _names(head: bytes) -> list[str]:
    """What the columns are called, by the first line."""
    return [cell.strip() for cell in _cells(head.removeprefix(BYTE_ORDER_MARK.encode()))]


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace")]), [])


def _is_open(line: bytes) -> bool:
    """Whether it ends within a quoted cell."""
    rows = csv.reader([line.decode(errors="replace"), ""])
    next(rows, None)
    return rows.line_num > 1


def _broken(column: str | int, cell: str) -> str:
    return (
        f"column {column} has a line break in a quoted cell, or no closing quote: {cell[:40]!r}; write each row in one "
        "line, or read the file in a function of --data"
    )


def _is_finite(cell: str) -> bool:
    number = _number(cell)
    return number is not None and math.isfinite(number) and abs(number) <= LARGEST


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
