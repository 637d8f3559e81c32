"""What is in record files: how many records, and which classes. Every record is read and parsed once for it.

Therefore a damaged record, a cell that is not a number or a missing label ends the job at its start, not after hours.
The result is kept next to the checkpoints, so that a restart, for which all replicas wait, does not scan again.
"""

import hashlib
import json
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.data.class_names import check_alike, in_order
from dtj_trainer.data.files import FileSet, first_line
from dtj_trainer.data.formats.reader import Reader, find_fault
from dtj_trainer.data.gzip_files import check_ends
from dtj_trainer.data.held_out_examples import ValidationShare
from dtj_trainer.data.record_files import FILES_AT_ONCE, Survey, Take, chunks, selected
from dtj_trainer.data.source import SEARCH_SECONDS
from dtj_trainer.errors import UsageError, may_pass
from dtj_trainer.local_files import write_atomically
from dtj_trainer.process.watchdog import moving

log = logging.getLogger(__name__)

MAX_CLASSES = 1000
_ROWS = 1024
_BYTES = 64 * 2**20
"""Of the records that are looked at at once, of all files: of pictures, these are fewer than `_ROWS` of a file."""
_SPOKEN_OF_SECONDS = 1.0


def survey(
    reader: Reader,
    found: FileSet,
    validation: FileSet | None,
    share: ValidationShare | None,
    *,
    memory: Path | None,
    writes: bool,
) -> Survey:
    """Looks at every record, or remembers what was found when these files were looked at before.

    Args:
        validation: the files to evaluate on; None: `share` of the records of `found`.
        memory: directory in which it is remembered.
        writes: whether this task may write there.

    Raises:
        UsageError: a record that cannot be used, or nothing to learn from or to be judged by.
    """
    known = memory and memory / f"data-{_digest(reader, found, validation, share)}.json"
    if known and (remembered := _read(known)):
        return remembered
    began = time.monotonic()
    made = _look(reader, found, validation, share)
    seconds = time.monotonic() - began
    if seconds > _SPOKEN_OF_SECONDS:
        log.log(
            logging.INFO if writes else logging.DEBUG,
            f"data: {len(found.paths)} files looked through in {seconds:.0f} s",
        )
    if known and writes:
        try:
            write_atomically(known, json.dumps(asdict(made)))
        except OSError as error:
            log.warning(f"{known}: not written ({error.strerror}); a restart will scan the files again")
    return made


def _look(reader: Reader, found: FileSet, validation: FileSet | None, share: ValidationShare | None) -> Survey:
    tally = _Tally(reader)
    try:
        for files in filter(None, (found, validation)):
            check_ends(files.paths)
            reader.check(files.paths)
        training, validation_counts = tally.count(found, share)
        if validation:
            validation_counts, _ = tally.count(validation, None)
    except tf.errors.OpError as error:
        until, cut = time.monotonic() + SEARCH_SECONDS, ""
        try:
            for files in filter(None, (found, validation)):
                if fault := find_fault(reader, files, until=until):
                    raise fault from None
        except TimeoutError:
            cut = f"; which record it is was not found in {SEARCH_SECONDS:.0f} s"
        raise UsageError(
            f"{found.where}: cannot be read ({first_line(error)}){cut}", restart_may_help=may_pass(error)
        ) from None
    if not sum(training):
        raise UsageError(f"--data-dir={found.where}: no record to learn from; give files with records")
    if not sum(validation_counts):
        what = (
            f"--held-out={validation.where}: no record" if validation else f"--data-dir={found.where}: too few records"
        )
        raise UsageError(f"{what} to evaluate the model with; give --held-out a larger share, or files with records")
    if not reader.numbers and len(tally.labels) < 2:
        raise UsageError(
            f"--data-dir={found.where}: every label is {next(iter(tally.labels))}; there is nothing to distinguish"
        )
    check_alike(tally.labels, found.where)
    return Survey(
        training=training,
        validation=validation_counts,
        classes=() if reader.numbers else in_order(tally.labels),
    )


class _Tally:
    """Counts records, and collects their labels."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.labels: dict[str, str] = {}
        """Each with the first file that has it."""

    def count(self, files: FileSet, share: ValidationShare | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many records of each file are to learn from, and how many are held out, in one go."""
        counts = [[0] * len(files.paths) for _ in range(2)]
        numbers = tf.data.Dataset.range(len(files.paths))
        parts = chunks(self._reader, files, numbers, self._look_at(share), size=self._rows(files))
        for number, training, validation, labels in moving(parts.prefetch(tf.data.AUTOTUNE)):
            counts[0][int(number)] += int(training)
            counts[1][int(number)] += int(validation)
            if not self._reader.numbers:
                self._collect(labels, path=files.paths[int(number)])
        return tuple(counts[0]), tuple(counts[1])

    def _rows(self, files: FileSet) -> int:
        """How many records of a file are looked at in one go, by the size of the first ones."""
        firsts = (self._reader.records(path).take(1).as_numpy_iterator() for path in files.paths[:FILES_AT_ONCE])
        largest = max((len(record) for first in firsts for record in first), default=1)
        return max(1, min(_ROWS, _BYTES // (FILES_AT_ONCE * max(1, largest))))

    def _look_at(self, share: ValidationShare | None) -> Take:
        kept_of = selected(self._reader, share, for_validation=True)

        def take(number: Any, path: Any, place: Any, records: Any) -> Any:
            used = self._reader.prepare(records, path)
            kept = tf.size(kept_of(number, path, place, records)) if share else 0
            return number, tf.size(used) - kept, kept, tf.unique(self._labels(used)).y

        return take

    def _labels(self, records: Any) -> Any:
        if self._reader.decodes_batches:
            return self._reader.parse(records)[1]
        kind = tf.float32 if self._reader.numbers else tf.string
        return tf.map_fn(lambda one: self._reader.parse(one)[1], records, fn_output_signature=kind)

    def _collect(self, labels: Any, *, path: str) -> None:
        for value in labels.numpy():
            try:
                self.labels.setdefault(value.decode(), path)
            except UnicodeDecodeError:
                raise UsageError(f"{path}: label {value[:40]!r} is no UTF-8 text; save the file as UTF-8") from None
        if len(self.labels) > MAX_CLASSES:
            raise UsageError(
                f"--data-dir: more than {MAX_CLASSES} different labels; for numbers to be predicted choose another "
                "--task"
            )


def _digest(reader: Reader, found: FileSet, validation: FileSet | None, share: ValidationShare | None) -> str:
    identity = repr((vars(reader), found, validation, share))  # a file by its size, and when it was written
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _read(path: Path) -> Survey | None:
    try:
        return Survey(**{name: tuple(values) for name, values in json.loads(path.read_text()).items()})
    except (OSError, ValueError, AttributeError, TypeError):
        return None
