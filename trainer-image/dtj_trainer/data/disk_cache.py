"""Decoded examples on a local disk, for data that are costly to decode and too many for memory. Imports TensorFlow.

Not tf.data's cache in a file: what an interrupted run leaves behind of that makes the next one fail.
"""

import hashlib
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.config.data import DataConfig
from dtj_trainer.data.files import Found
from dtj_trainer.data.formats.reader import Parsed
from dtj_trainer.data.pipeline import Pipeline
from dtj_trainer.data.record_files import RecordFiles
from dtj_trainer.data.scan import Survey
from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError

_FILES = 16
_ROWS = 256
_PARTS = ("training", "held-out")


class _Rows:
    """A `dtj_trainer.data.formats.reader.Reader` of examples in memory: the bytes of input and label."""

    decodes_batches = True
    numbers = True
    """Labels are as the model gets them: nothing is left to look up."""

    def __init__(self, examples_are: Any, label_type: Any) -> None:
        self.examples_are = examples_are
        self._label_type = label_type
        self._input_bytes = int(np.prod(examples_are.shape.as_list())) * examples_are.dtype.size

    def records(self, path: Any) -> Stream:
        """Rows of a length that is known."""
        return tf.data.FixedLengthRecordDataset(path, self._input_bytes + self._label_type.size)

    def prepare(self, records: Any, number: Any) -> Any:
        """Nothing."""
        return records

    def parse(self, records: Any) -> Parsed:
        """Bytes -> numbers."""
        split, end = self._input_bytes, self._input_bytes + self._label_type.size
        inputs = tf.io.decode_raw(tf.strings.substr(records, 0, split), self.examples_are.dtype)
        labels = tf.io.decode_raw(tf.strings.substr(records, split, end - split), self._label_type)
        return Parsed(labels=labels[:, 0], dense=tf.reshape(inputs, (-1, *self.examples_are.shape)))

    def explain(self, record: bytes) -> str | None:
        """Nothing: they are our own."""
        return None

    def describe(self, words: Mapping[str, Sequence[str]]) -> str:
        """Nothing: the reader of the files did."""
        return ""

    def check(self, paths: Sequence[str]) -> None:
        """They are our own."""


def store(source: Pipeline, config: DataConfig, found: tuple[Found, Found | None], folder: Path) -> Pipeline:
    """The source's examples from files below `folder`, which are written unless an earlier run did that.

    Args:
        found: the files to learn from, and those to be judged by if these are others.

    Raises:
        UsageError: the examples have no fixed length, or the folder cannot be written.
    """
    if source.input_spec.dtype == tf.string:
        raise UsageError(
            f"--cache={folder}: a text is read as it is, and gains nothing there; give --cache=memory or none"
        )
    spec = tf.TensorSpec(source.input_spec.shape[1:], source.input_spec.dtype)
    label_type = source.validation(batch=1).element_spec[1].dtype
    identity = repr((config, found, spec, label_type, source.classes))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    complete = folder / digest
    draft = folder / f".{digest}.{socket.gethostname()}-{os.getpid()}"
    row = int(np.prod(spec.shape.as_list())) * spec.dtype.size + label_type.size
    try:
        shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
        if complete.exists() and not _is_whole(complete, source, row):
            complete.rename(draft)
            shutil.rmtree(draft)
        if not complete.exists():
            _write(source, draft, complete)
    except OSError as error:
        raise UsageError(
            f"--cache={folder}: cannot be written ({error.strerror}); mount a local disk with room there"
        ) from None
    parts = [_found(complete / part) for part in _PARTS]
    counts = [tuple(size // row for size in part.sizes) for part in parts]
    known = Survey(training=counts[0], validation=counts[1], classes=source.classes, words={})
    stored = RecordFiles(config, _Rows(spec, label_type), parts[0], parts[1], known, by_files=False)
    stored.name = source.name
    return stored


def _write(source: Pipeline, draft: Path, complete: Path) -> None:
    """Both parts, each over several files in turn, so that neighbours in the original do not stay neighbours."""
    try:
        streams = source.batched(source.in_order(), _ROWS, full=False), source.validation(batch=_ROWS)
        for part, stream in zip(_PARTS, streams, strict=True):
            (draft / part).mkdir(parents=True)
            files = [(draft / part / f"{number:02d}").open("wb") for number in range(_FILES)]
            try:
                row = 0
                for inputs, labels in stream.as_numpy_iterator():
                    for one, label in zip(inputs, labels, strict=True):
                        files[row % _FILES].write(one.tobytes() + label.tobytes())
                        row += 1
                for file in files:
                    # The name of the whole must not reach the disk before its rows.
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                for file in files:
                    file.close()
        try:
            draft.rename(complete)
        except OSError:
            # Another process of this machine was faster, and wrote the same.
            if not complete.exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_whole(complete: Path, source: Pipeline, row: int) -> bool:
    """Whether all rows are there: a node may lose what was written last."""
    for part, examples in zip(_PARTS, (source.examples, source.validation_examples), strict=True):
        sizes = _found(complete / part).sizes if (complete / part).is_dir() else ()
        if sum(sizes) != examples * row or any(size % row for size in sizes):
            return False
    return True


def _found(folder: Path) -> Found:
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    return Found(str(folder), tuple(map(str, files)), tuple(path.stat().st_size for path in files))
