"""CSV files with a header. Lines are decoded in batches. Imports TensorFlow.

A quoted cell may hold commas, but no line break: lines are what is shuffled and divided.
"""

import csv
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.config.data import DataConfig
from dtj_trainer.data.files import Found
from dtj_trainer.data.formats.reader import Parsed, compression
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

_LOOKED_AT = 200


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
        lines = [
            line.decode(errors="replace") for line in self._lines(self._first).take(_LOOKED_AT + 1).as_numpy_iterator()
        ]
        if len(lines) < 2:
            raise UsageError(
                f"{self._first}: {'a header only' if lines else 'empty'}; a csv file needs a header and rows"
            )
        self._header, *rows = [next(csv.reader([line])) for line in lines if line.strip()]
        self._line = lines[0]
        self._label = self._column("--label-column", config.label)
        wanted = config.columns or [name for name in self._header if name != config.label]
        self._inputs = sorted(self._column("--columns", name) for name in wanted)
        if self._label in self._inputs:
            raise UsageError(f"--columns: {config.label} is the label (--label-column); name the others")
        if not self._inputs:
            raise UsageError(
                f"{self._first}: no column but {config.label} (--label-column); there is nothing to learn from"
            )
        self._words = frozenset(i for i in self._inputs if any(not _is_number(row[i]) for row in rows if i < len(row)))
        if numbers and any(not _is_number(row[self._label]) for row in rows if self._label < len(row)):
            raise UsageError(
                f"{self._first}: column {config.label} (--label-column) holds words; this task predicts numbers"
            )
        dense = len(self._inputs) - len(self._words)
        self.examples_are = tf.TensorSpec((dense,), tf.float32) if dense else None

    def records(self, path: Any) -> Stream:
        """Lines behind the header."""
        return self._lines(path).skip(1)

    def prepare(self, records: Any, number: Any) -> Any:
        """Drops empty lines."""
        return tf.boolean_mask(records, tf.not_equal(tf.strings.length(records), 0))

    def parse(self, records: Any) -> Parsed:
        """Cells of the columns that are used."""
        used = sorted([*self._inputs, self._label])
        kinds = [self._kind(column) for column in used]
        cells = dict(zip(used, tf.io.decode_csv(records, kinds, select_cols=used), strict=True))
        label = cells[self._label]
        dense = [cells[column] for column in self._inputs if column not in self._words]
        return Parsed(
            labels=label if self.numbers else tf.strings.strip(label),
            dense=tf.stack(dense, axis=1) if dense else None,
            words={
                self._header[column]: tf.strings.strip(cells[column])
                for column in self._inputs
                if column in self._words
            },
        )

    def check(self, paths: Sequence[str]) -> None:
        """That all files have the header of the first."""
        heads = tf.data.Dataset.from_tensor_slices(list(paths)).interleave(
            lambda path: self._lines(path).take(1).map(lambda line: (path, line)), num_parallel_calls=tf.data.AUTOTUNE
        )
        for path, line in heads.as_numpy_iterator():
            if line.decode(errors="replace").strip() != self._line.strip():
                raise UsageError(
                    f"{path.decode()}: its header is not that of {self._first}; "
                    "all files of a job need the same columns"
                )

    def _lines(self, path: Any) -> Stream:
        return tf.data.TextLineDataset(path, compression_type=compression(path))

    def _kind(self, column: int) -> Any:
        """What decode_csv wants: an empty tensor of the type, since no cell may be empty; but words may."""
        if column in self._words or (column == self._label and not self.numbers):
            return tf.constant([""]) if column in self._words else tf.constant([], tf.string)
        return tf.constant([], tf.float32)

    def _column(self, option: str, name: str) -> int:
        names = [cell.strip().removeprefix("\ufeff") for cell in self._header]
        self._header = names
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise UsageError(f"{option}={name}: no such column in {self._first}; it has {listed}")
        return names.index(name)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
