"""CSV files with a header. Lines are decoded in batches. Imports TensorFlow.

A quoted cell may hold commas, but no line break: lines are what is shuffled and divided.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.config.data import DataConfig
from dtj_trainer.data.files import Found
from dtj_trainer.data.formats.reader import BYTE_ORDER_MARK, Parsed, check_utf8, lines, shortened
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

_LOOKED_AT = 200
_LISTED = 8
"""As many words of a column are shown."""
_MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"))
"""What tables have in place of a value that is not known, in lower case."""
_LARGEST = float(tf.float32.max)
_SEEN = 1e-3
"""The part of the range of a column by which rounding is spoken of."""
_NEARLY = 0.9
"""The share of numbers among the cells of a column above which the others are mistakes, and not words."""


class Table:
    """A `dtj_trainer.data.formats.reader.Reader` of CSV files: numeric columns; columns of words as one-hot vectors."""

    decodes_batches = True

    def __init__(self, config: DataConfig, found: Found, *, numbers: bool) -> None:
        """Learns the columns from the beginning of the first file.

        Raises:
            UsageError: no header, or a column that is not there or cannot be used.
        """
        self.numbers = numbers
        self._first = found.paths[0]
        head, *rest = [*lines(self._first).take(_LOOKED_AT + 1).as_numpy_iterator()] or [b""]
        check_utf8(head, self._first)
        rows = [_cells(line) for line in rest if line.strip()]
        if not rows or not head.strip():
            lacks = "its first line is empty" if rows else "a header only" if head.strip() else "empty"
            raise UsageError(f"{self._first}: {lacks}; a csv file needs a header and rows")
        self._header = _names(head)
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
        self._words = frozenset(i for i in self._inputs if _holds_words([row[i] for row in rows if i < len(row)]))
        if numbers and _holds_words([row[self._label] for row in rows if self._label < len(row)]):
            raise UsageError(
                f"{self._first}: column {config.label} (--label-column) holds words; this task predicts numbers"
            )
        self._rounded = {
            i: f" (rounded by up to {error:g})"
            for i in ({*self._inputs, self._label} if numbers else {*self._inputs}) - self._words
            if (error := _rounding([row[i] for row in rows if i < len(row)]))
        }
        dense = len(self._inputs) - len(self._words)
        self.examples_are = tf.TensorSpec((dense,), tf.float32) if dense else None

    def records(self, path: Any) -> Stream:
        """Lines behind the header."""
        return lines(path).skip(1)

    def prepare(self, records: Any, number: Any) -> Any:
        """Drops empty lines."""
        return tf.boolean_mask(records, tf.not_equal(tf.strings.length(records), 0))

    def parse(self, records: Any) -> Parsed:
        """Cells of the columns that are used."""
        # All are decoded: with `select_cols`, TensorFlow takes a row that has more cells than the header.
        cells = tf.io.decode_csv(records, [self._kind(column) for column in range(len(self._header))])
        label = cells[self._label]
        dense = [
            tf.debugging.check_numerics(cells[column], "no number")
            for column in self._inputs
            if column not in self._words
        ]
        return Parsed(
            labels=tf.debugging.check_numerics(label, "no number") if self.numbers else tf.strings.strip(label),
            dense=tf.stack(dense, axis=1) if dense else None,
            words={
                self._header[column]: tf.strings.strip(cells[column])
                for column in self._inputs
                if column in self._words
            },
        )

    def describe(self, words: Mapping[str, Sequence[str]]) -> str:
        """See `Reader`."""
        numeric = [self._header[i] + self._rounded.get(i, "") for i in self._inputs if i not in self._words]
        listed = [
            f"{name} ({', '.join(one or 'empty' for one in values[:_LISTED])}"
            f"{f', ... {len(values)} in all' if len(values) > _LISTED else ''})"
            for name, values in words.items()
        ]
        label = [self._header[self._label] + self._rounded[self._label]] if self._label in self._rounded else []
        kinds = [("numeric columns", numeric), ("columns of words", listed), ("label", label)]
        return "; ".join(f"{kind} {shortened(names)}" for kind, names in kinds if names)

    def check(self, paths: Sequence[str]) -> None:
        """That all files have the header of the first."""
        heads = tf.data.Dataset.from_tensor_slices(list(paths)).interleave(
            lambda path: lines(path).take(1).map(lambda line: (path, line)), num_parallel_calls=tf.data.AUTOTUNE
        )
        for path, line in heads.as_numpy_iterator():
            if _names(line) != self._header:
                raise UsageError(
                    f"{path.decode()}: its header is not that of {self._first}; "
                    "all files of a job need the same columns"
                )

    def explain(self, record: bytes) -> str | None:
        """See `Reader`."""
        cells = _cells(record)
        if len(cells) != len(self._header):
            return f"it has {len(cells)} cells, and the header has {len(self._header)}"
        for column in sorted({*self._inputs, self._label} - self._words):
            cell = cells[column].strip()
            name = f"column {self._header[column]}" + (" (--label-column)" if column == self._label else "")
            if not cell:
                return f"{name} is empty"
            if (self.numbers or column != self._label) and not _is_finite(cell):
                return f"{name} is {cell[:40]!r}, and not a number as in the rows before"
        return None

    def _kind(self, column: int) -> Any:
        """What decode_csv wants: an empty tensor of the type, since no cell may be empty; but words may."""
        if column == self._label:
            return tf.constant([], tf.float32 if self.numbers else tf.string)
        if column in self._words or column not in self._inputs:
            return tf.constant([""])
        return tf.constant([], tf.float32)

    def _column(self, option: str, name: str) -> int:
        if name not in self._header:
            raise UsageError(f"{option}={name}: no such column in {self._first}; it has {shortened(self._header)}")
        return self._header.index(name)


def check_words(words: Mapping[str, Sequence[str]], where: str) -> None:
    """That no column of words, with the values that it has in all rows, is one of numbers.

    Raises:
        UsageError: one is, since the rows that were looked at first have no value in it.
    """
    for name, values in words.items():
        if not _holds_words(values) and all(_is_number(value) or _is_missing(value) for value in values):
            raise UsageError(
                f"{where}: column {name} is empty in its first {_LOOKED_AT} rows, and has numbers in others; fill it "
                "in, or leave it out with --columns"
            )


def _names(head: bytes) -> list[str]:
    """What the columns are called, by the first line."""
    return [cell.strip() for cell in _cells(head.removeprefix(BYTE_ORDER_MARK.encode()))]


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace")]), [])


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _holds_words(cells: Sequence[str]) -> bool:
    """Whether a column with these cells is one of words: a few cells that are no numbers make no such column."""
    given = [cell for cell in cells if not _is_missing(cell)]
    return sum(map(_is_number, given)) < _NEARLY * len(given) if given else True


def _is_number(cell: str) -> bool:
    return _number(cell) is not None


def _is_finite(cell: str) -> bool:
    number = _number(cell)
    return number is not None and math.isfinite(number) and abs(number) <= _LARGEST


def _rounding(cells: Sequence[str]) -> float:
    """How far float32 is off, where that is a part of the differences that can be seen; else 0."""
    values = np.array([number for cell in cells if (number := _number(cell)) is not None and abs(number) < _LARGEST])
    error = float(np.abs(values - values.astype(np.float32)).max(initial=0.0))
    return error if len(values) and error > _SEEN * float(np.ptp(values)) > 0 else 0.0


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
