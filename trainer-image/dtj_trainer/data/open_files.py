"""From the options to a source. Imports TensorFlow."""

import csv
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.config.data import AUTO, CSV, IMAGES, NONE, TFRECORD
from dtj_trainer.config.parsing import Config
from dtj_trainer.config.store_url import is_url, without_credentials
from dtj_trainer.data import files
from dtj_trainer.data.files import FileSet
from dtj_trainer.data.formats.csv import CsvReader
from dtj_trainer.data.formats.images import Images
from dtj_trainer.data.formats.reader import Reader, shortened
from dtj_trainer.data.formats.text import TextReader
from dtj_trainer.data.formats.tfrecord import TFRecordReader
from dtj_trainer.data.full_batches import Arrays, FullBatches
from dtj_trainer.data.held_out_examples import ValidationShare
from dtj_trainer.data.record_files import RecordFiles
from dtj_trainer.data.scan import survey
from dtj_trainer.data.source import diagnosing_data_errors
from dtj_trainer.data.task_inputs import check_inputs
from dtj_trainer.datasets import Dataset, Split
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store import data_cache
from dtj_trainer.process.watchdog import moved, moving

log = logging.getLogger(__name__)

_NAMED_CLASSES = 20
"""As many classes are shown by their names."""

FEW_BYTES = 64 * 2**20
"""What decoded examples may take to be kept in memory without being asked: it is also what travels to the workers of
parameter servers and of the tf.data service."""
_WHERE, _HELD_OUT = "--data-dir", "--held-out"
_Chosen = tuple[FileSet, FileSet | None, ValidationShare | None]
"""The files, and what of the examples is held out: other files, or a share of them."""


def open_files(config: Config, *, numbers: bool, task: str | None = None) -> FullBatches:
    """The user's files; the leader says how they are read.

    Args:
        numbers: whether the task predicts numbers, and not classes.
        task: that ships, which has to take the examples; None: a model of the user's own.

    Raises:
        UsageError: files, columns or records that cannot be used.
    """
    data = config.data
    assert data.where is not None  # a checked configuration
    found, form = files.find(_brought(config, data.where, _WHERE), option=_WHERE, form=data.format)
    validation, taken_out = None, 0
    if isinstance(data.validation, str):
        validation, _ = files.find(_brought(config, data.validation, _HELD_OUT), option=_HELD_OUT, form=form)
        learned = found.without(validation)
        if not learned.paths:
            raise UsageError(
                f"{_HELD_OUT}={data.validation}: these are all files of {_WHERE}={data.where}; name others"
            )
        found, taken_out = learned, len(found.paths) - len(learned.paths)
    share = None if validation else ValidationShare(float(data.validation))
    made = _images if form == IMAGES else _records
    source = made(config, form, (found, validation, share), numbers=numbers, task=task)
    if not source.validation_examples:
        raise UsageError(f"{_WHERE}={data.where}: too few examples to hold some out; give a larger {_HELD_OUT}")
    level = config.cluster.common_log_level
    log.log(
        level,
        f"data: {data.where}: {form}, {len(found.paths)} files, {source.examples} examples to learn from, "
        f"{source.validation_examples} held out{_named(source.classes)}",
    )
    log.log(level, f"data: inputs: {source.describe()}")
    if validation:
        also = f", {taken_out} of them out of {_WHERE}" if taken_out else ""
        log.log(level, f"data: {_HELD_OUT}={data.validation}: {len(validation.paths)} files held out{also}")
    both = [found, *([validation] if validation else [])]
    if left_out := sorted({p for one in both for p in one.left_out} - {p for one in both for p in one.paths}):
        log.log(level, f"data: {len(left_out)} files left out: {shortened(left_out)}")
    if split := _split_of(found):
        log.log(
            level,
            f"data: {data.where}: {split[0]} and {split[1]} are both learned from; to be judged by {split[1]} alone, "
            f"give its path with {_HELD_OUT}",
        )
    with diagnosing_data_errors(source):
        return _cached(config, source)


def _images(config: Config, form: str, chosen: _Chosen, *, numbers: bool, task: str | None) -> Images:
    given = f"{_WHERE}={config.data.where}"
    source = Images(*chosen, size=config.data.image_size, option=_WHERE)
    if task:
        check_inputs(task, source.input_spec, given)
    if numbers:
        raise UsageError(f"{given}: directories of {form} are classes; this task predicts numbers")
    return source


def _records(config: Config, form: str, chosen: _Chosen, *, numbers: bool, task: str | None) -> RecordFiles:
    reader = _reader(config, form, chosen[0], numbers=numbers, own_model=task is None)
    if task:
        one = reader.examples_are
        check_inputs(task, tf.TensorSpec((None, *one.shape), one.dtype), f"{_WHERE}={config.data.where}")
    known = survey(reader, *chosen, memory=config.checkpoint.directory, writes=config.cluster.leads)
    return RecordFiles(reader, *chosen, known)


_TRAINING = frozenset({"train", "training"})
_NOT_TRAINING = frozenset({"test", "testing", "val", "valid", "validation", "eval", "dev"})


def _split_of(found: FileSet) -> tuple[str, str] | None:
    """Names of a part of the files that looks like training data, and of one that does not, if both are there."""
    training, others = (
        sorted(part for part in found.parts if part.lower() in names) for names in (_TRAINING, _NOT_TRAINING)
    )
    return (training[0], others[0]) if training and others else None


def _named(classes: Sequence[str]) -> str:
    if not classes:
        return ""
    names = f": {', '.join(classes)}" if len(classes) <= _NAMED_CLASSES else ""
    return f", {len(classes)} classes{names}"


def _brought(config: Config, where: str, option: str) -> str:
    """Where the files are on this machine.

    The workers of the tf.data service have no local copies: TensorFlow opens the files there, and knows gs:// alone.
    """
    if not is_url(where):
        return where
    if config.data.service:
        if where.startswith("gs://"):
            return where
        raise UsageError(
            f"{option}={without_credentials(where)}: the tf.data service cannot read s3://; mount the files in every "
            "pod, or leave the service out of the job"
        )
    return data_cache.fetch(where, option=option, store=config.store, moved=moved)


def _reader(config: Config, form: str, found: FileSet, *, numbers: bool, own_model: bool) -> Reader:
    try:
        if form == TFRECORD:
            return TFRecordReader(config.data, found, numbers=numbers, own_model=own_model)
        if form == CSV:
            return CsvReader(config.data, found, numbers=numbers)
        return TextReader(found, option=_WHERE, numbers=numbers)
    except (tf.errors.OpError, csv.Error) as error:
        # Of a file that cannot be opened TensorFlow says the path.
        path = next((path for path in found.paths if f"{path}; " in str(error)), found.paths[0])
        raise files.fault_of(
            path, error, f"cannot be read as {form} ({files.first_line(error)}); give --data-format"
        ) from None


def _cached(config: Config, source: Images | RecordFiles) -> FullBatches:
    wanted = config.data.cache
    size = _decoded_bytes(source)
    if wanted == NONE or (wanted == AUTO and size > FEW_BYTES):
        return source
    log.log(
        config.cluster.common_log_level,
        f"data: cache memory: {size / 2**20:.1f} MiB decoded once; every epoch is a permutation of all examples",
    )
    decoded = Arrays(
        Dataset(
            name=source.name,
            training=_split(source.batched(source.in_order(), 256, full=False)),
            validation=_split(source.validation(batch=256)),
            classes=source.classes,
        )
    )
    decoded.exact_inputs, decoded.counts = source.exact_inputs, source.counts
    return decoded


def _decoded_bytes(source: Images | RecordFiles) -> int:
    spec = source.input_spec
    if isinstance(source, RecordFiles) and spec.dtype == tf.string:
        return source.file_bytes
    return int(math.prod(spec.shape[1:], start=spec.dtype.size * (source.examples + source.validation_examples)))


def _split(stream: Any) -> Split:
    inputs, labels = zip(*moving(stream.as_numpy_iterator()), strict=True)
    return Split(inputs=np.concatenate(inputs), labels=np.concatenate(labels))
