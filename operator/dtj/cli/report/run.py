"""What the folder of a local run holds about it, TensorBoard's event files included."""

from __future__ import annotations

import shlex
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import KIND, State
from dtj.cli.report.evidence import (
    LOG_BYTES,
    SPEED,
    VALIDATION,
    Evidence,
    Log,
    PhaseChange,
    Scalar,
    Setting,
    Unread,
    by_time,
    last_lines,
    scalars_of,
)
from dtj.local.run_directory import STOPPED, RunDirectory
from dtj.local.run_record import NoObjects, RunRecord, Start, read_manifest, read_objects, read_record

_TRAINING: Final = "train"
_VALIDATION: Final = "validation"
"""The runs of TensorBoard that hold the curves of the training and of its validations."""

_SPEED: Final = "examples_per_second"
_NEVER: Final = "9"
"""Later than every time, as text."""

_Stored = tuple[Start | None, list[JsonObject]]


def gather(directory: RunDirectory) -> Evidence:
    """All that is known of a run on this machine, with all of its starts. Raises NoManifest."""
    unread: list[Unread] = []
    manifest, record = read_manifest(directory), read_record(directory.record)
    stored = _stored(directory, record.starts, unread)
    phases = tuple(_phases(record))
    *earlier, last = (
        _part(directory, manifest, each, phases, last=place == len(stored)) for place, each in enumerate(stored, 1)
    )
    logs = tuple(_logs(directory, text(dig(manifest, "metadata", "name")), unread))
    return replace(
        last,
        taken_at=datetime.now(UTC),
        objects={"service": tuple(_of_kind(stored[-1][1], "Service"))},
        logs=logs,
        # The log holds a line every few seconds only.
        scalars=tuple(_scalars(directory)) or scalars_of(logs),
        settings=tuple(_settings(record)),
        earlier=tuple(earlier),
        unread=tuple(unread),
    )


def _stored(directory: RunDirectory, starts: tuple[Start, ...], unread: list[Unread]) -> list[_Stored]:
    """Each start with the objects that it left: none if it still runs or was killed. There is one at least."""
    found = []
    for file in (*directory.earlier_objects(), directory.objects):
        try:
            found.append(read_objects(file))
        except NoObjects as error:
            if file == directory.objects:
                unread.append(Unread("status, pods and events", str(error)))
    if not starts:  # of a version that wrote no record
        return [(None, items) for items in found] or [(None, [])]
    begins = [start.started_at for start in starts]
    return [
        (start, next((items for items in found if start.started_at <= _created(items) < end), []))
        for start, end in zip(starts, [*begins[1:], _NEVER], strict=True)
    ]


def _created(items: list[JsonObject]) -> str:
    """When the job among these objects was created, as the runner writes it."""
    return next((text(dig(job, "metadata", "creationTimestamp")) for job in _of_kind(items, KIND)), "")


def _part(
    directory: RunDirectory, manifest: JsonObject, stored: _Stored, phases: tuple[PhaseChange, ...], *, last: bool
) -> Evidence:
    """One start, as it was at its end."""
    start, items = stored
    status = _status(directory, start, last=last) if start is not None else {}
    job = next(iter(_of_kind(items, KIND)), {**manifest, "status": status})
    return Evidence(
        source=f"run {directory.path.resolve().name} on this machine",
        taken_at=parse_time(dig(job, "status", "completionTime")) or datetime.now(UTC),
        job=job,
        pods=tuple(_of_kind(items, "Pod")),
        events=tuple(by_time(_of_kind(items, "Event"))),
        phases=phases,
        on_this_machine=True,
    )


def _status(directory: RunDirectory, start: Start, *, last: bool) -> JsonObject:
    """The status of a job of which only the record of its start is there."""
    status: JsonObject = {"state": State.RUNNING, "attempt": 1, "startTime": start.started_at}
    if last and directory.running:
        return status
    return {**status, "state": STOPPED, "completionTime": start.ended_at or _last_sign(directory, start, last=last)}


def _last_sign(directory: RunDirectory, start: Start, *, last: bool) -> str:
    """The last time at which a killed start is known to have been alive."""
    signs = [start.started_at, *(change.at for change in start.phases)]
    if last:
        written = (datetime.fromtimestamp(log.stat().st_mtime, UTC) for log in directory.replica_logs())
        signs += [moment.isoformat().replace("+00:00", "Z") for moment in written]
    return max(signs)


def _of_kind(stored: list[JsonObject], kind: str) -> list[JsonObject]:
    return [item for item in stored if item.get("kind") == kind]


def _scalars(directory: RunDirectory) -> Iterator[Scalar]:
    """What was measured in the training, and of held-out examples during it."""
    for scalar in read_scalars(directory.tensorboard / _TRAINING):
        yield replace(scalar, name=SPEED) if scalar.name == _SPEED else scalar
    for scalar in read_scalars(directory.tensorboard / _VALIDATION):
        yield replace(scalar, name=f"{VALIDATION}{scalar.name}")


def _phases(record: RunRecord) -> Iterator[PhaseChange]:
    for change in (change for start in record.starts for change in start.phases):
        at = parse_time(change.at)
        if at is not None:
            yield PhaseChange(change.replica, change.phase, at)


def _settings(record: RunRecord) -> Iterator[Setting]:
    """With what the run was started, the last time."""
    for start in record.starts[-1:]:
        if start.command:
            yield Setting("Command", "command", shlex.join(start.command))
        yield Setting("Command", "folder", start.folder)
        yield from (Setting("Versions", name, version) for name, version in start.versions.items())
        yield from (Setting("Host", name, value) for name, value in start.host.items())


def _logs(directory: RunDirectory, job: str, unread: list[Unread]) -> Iterator[Log]:
    """One a replica, named as its pod would be, and the runner's own."""
    for file in sorted(directory.logs.glob("*.log")):
        name = f"{job}-{file.stem}" if file != directory.runner_log else "dtj"
        try:
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - LOG_BYTES))
                yield Log(name, last_lines(opened.read().decode(errors="replace")))
        except OSError as error:
            unread.append(Unread(f"log of {name}", error.strerror or str(error)))


# -- TensorBoard's event files ----------------------------------------------------------------------------------

# They hold a point for each call of the trainer's loop. Their formats are TFRecord (length, checksum, data, checksum)
# around protocol buffers (tensorflow/core/util/event.proto); of these the few fields of a scalar are read here, since
# TensorBoard is not in this environment. A file that is still being written is read up to its last whole record.

_SIZES: Final = {1: 8, 5: 4}
"""Bytes of the wire types of protocol buffers that have a fixed size; 0 is a number, 2 has its length before it."""

_MAX_BYTES: Final = 2**26
"""A file that is larger is no log of scalars alone."""


def read_scalars(folder: Path) -> tuple[Scalar, ...]:
    """The scalars of all event files of a folder, oldest file first; what cannot be read is as if it were not there."""
    found: list[Scalar] = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        with suppress(OSError, ValueError, struct.error, IndexError, OverflowError):
            content = file.read_bytes() if file.stat().st_size <= _MAX_BYTES else b""
            start = 0
            while start + 12 <= len(content):
                end = start + 12 + int.from_bytes(content[start : start + 8], "little")
                if end + 4 > len(content):
                    break
                found += _event(content[start + 12 : end])
                start = end + 4
    return tuple(found)


def _event(record: bytes) -> Iterator[Scalar]:
    """Event: wall_time = 1 (double), step = 2 (int64), summary = 5. Summary.Value: tag = 1, simple_value = 2 (float),
    tensor = 8."""
    fields = dict(_fields(record))
    when, step, summary = fields.get(1), fields.get(2, 0), fields.get(5)
    if not isinstance(when, bytes) or not isinstance(step, int) or not isinstance(summary, bytes):
        return
    at = datetime.fromtimestamp(struct.unpack("<d", when)[0], UTC)
    for content in (value for number, value in _fields(summary) if number == 1 and isinstance(value, bytes)):
        value = dict(_fields(content))
        tag, simple, tensor = value.get(1), value.get(2), value.get(8)
        number = simple if isinstance(simple, bytes) else _float_of(tensor) if isinstance(tensor, bytes) else None
        if isinstance(tag, bytes) and number is not None:
            yield Scalar(tag.decode(errors="replace"), step, struct.unpack("<f", number)[0], at)


def _float_of(tensor: bytes) -> bytes | None:
    """TensorProto: dtype = 1 (1 is float32), tensor_content = 4, float_val = 5; a scalar's four bytes."""
    fields = dict(_fields(tensor))
    values = (value for value in (fields.get(4), fields.get(5)) if isinstance(value, bytes) and len(value) == 4)
    return next(values, None) if fields.get(1) == 1 else None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in order. Raises ValueError or IndexError where it is none."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, place = _varint(content, place) if key & 7 in (0, 2) else (_SIZES.get(key & 7, -1), place)
        if key & 7 == 0:
            yield key >> 3, number
            continue
        if number < 0 or place + number > len(content):
            raise ValueError("no protocol buffer, or cut off")
        yield key >> 3, content[place : place + number]
        place += number


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next field begins."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        number, place = number | (byte & 127) << shift, place + 1
        if byte < 128:
            return number, place
    raise ValueError("a number without end")
