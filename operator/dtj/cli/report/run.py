"""What the folder of a local run holds about it, TensorBoard's event files included."""

from __future__ import annotations

import shlex
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dtj.api.job import micro_time, parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import KIND, State
from dtj.cli.report.evidence import (
    SPEED,
    VALIDATION,
    Evidence,
    Log,
    PhaseChange,
    Scalar,
    Setting,
    Unread,
    scalars_of,
)
from dtj.client.overview import Event, aggregated
from dtj.local.run_directory import STOPPED, RunDirectory
from dtj.local.run_record import NoObjects, Start, read_manifest, read_objects, read_record

_CURVES: Final = {"train": "", "validation": VALIDATION}
"""The runs of TensorBoard that hold curves, and what the names of their metrics begin with."""

_LOG_BYTES: Final = 2**20
"""How much of each log is read, from its end."""

_NAMES: Final = {"examples_per_second": SPEED}


def gather(directory: RunDirectory) -> Evidence:
    """All that is known of a run on this machine, with all of its starts. Raises RunError."""
    unread: list[Unread] = []
    manifest, starts = read_manifest(directory), read_record(directory.record).starts
    found: list[JsonObject] = []
    for file in (*directory.earlier_objects(), directory.objects):
        try:
            found += read_objects(file)
        except NoObjects as error:
            if file == directory.objects:
                unread.append(Unread("status, pods and events", str(error)))
    logs = tuple(_logs(directory, unread))
    changes = [change for start in starts for change in start.phases]
    *earlier, job = [*_jobs(directory, manifest, _of_kind(found, KIND), starts)] or [manifest]
    return Evidence(
        source=f"run {directory.path.resolve().name} on this machine",
        taken_at=datetime.now(UTC),
        job=job,
        earlier=tuple(earlier),
        objects={"pods": tuple(_of_kind(found, "Pod"))},
        events=aggregated(map(Event.from_object, _of_kind(found, "Event"))),
        logs=tuple(log.end() for log in logs),
        # The log holds a line every few seconds only.
        scalars=tuple(_scalars(directory)) or scalars_of(logs),
        phases=tuple(PhaseChange(each.replica, each.phase, at) for each in changes if (at := parse_time(each.at))),
        settings=tuple(_settings(starts)),
        on_this_machine=True,
        unread=tuple(unread),
    )


def _of_kind(stored: list[JsonObject], kind: str) -> list[JsonObject]:
    return [item for item in stored if item.get("kind") == kind]


def _jobs(
    directory: RunDirectory, manifest: JsonObject, ended: list[JsonObject], starts: tuple[Start, ...]
) -> Iterator[JsonObject]:
    """The job as it was at the end of each start. A start that still runs, or was killed, has left its record alone."""
    if not starts:  # its file is gone, or damaged
        yield from ended
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        until = following.started_at if following is not None else "9"  # later than every time, as text
        created = ((text(dig(job, "metadata", "creationTimestamp")), job) for job in ended)
        status: JsonObject = {"state": State.RUNNING, "attempt": 1, "startTime": start.started_at}
        if following is not None or not directory.running:
            status |= {"state": STOPPED, "completionTime": start.ended_at or _last_sign(directory, start, following)}
        known = (job for at, job in created if start.started_at <= at < until)
        yield next(known, {**manifest, "status": status})


def _last_sign(directory: RunDirectory, start: Start, following: Start | None) -> str:
    """The last time at which a killed start is known to have been alive."""
    logs = directory.replica_logs() if following is None else ()
    written = (micro_time(datetime.fromtimestamp(log.stat().st_mtime, UTC)) for log in logs)
    return max([start.started_at, *(change.at for change in start.phases), *written])


def _scalars(directory: RunDirectory) -> Iterator[Scalar]:
    """What was measured in the training, and of held-out examples during it."""
    for folder, prefix in _CURVES.items():
        for scalar in read_scalars(directory.tensorboard / folder):
            yield scalar._replace(name=prefix + _NAMES.get(scalar.name, scalar.name))


def _settings(starts: tuple[Start, ...]) -> Iterator[Setting]:
    """With what the run was started, the last time."""
    for start in starts[-1:]:
        if start.command:
            yield Setting("Command", "command", shlex.join(start.command))
        yield Setting("Command", "folder", start.folder)
        yield from (Setting("Versions", *pair) for pair in start.versions.items())
        yield from (Setting("Host", *pair) for pair in start.host.items())


def _logs(directory: RunDirectory, unread: list[Unread]) -> Iterator[Log]:
    """One a replica, and the runner's own."""
    for file in sorted(directory.logs.glob("*.log")):
        try:
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - _LOG_BYTES))
                yield Log(file.stem, opened.read().decode(errors="replace"))
        except OSError as error:
            unread.append(Unread(f"log of {file.stem}", error.strerror or str(error)))


# -- TensorBoard's event files ----------------------------------------------------------------------------------

# They hold a point for each call of the trainer's loop. Their formats are TFRecord (length, checksum, data, checksum)
# around protocol buffers (tensorflow/core/util/event.proto); of these the few fields of a scalar are read here, since
# TensorBoard is not in this environment. A file that is still being written is read up to its last whole record.

_MAX_BYTES: Final = 2**26
"""A file that is larger is no log of scalars alone."""


def read_scalars(folder: Path) -> tuple[Scalar, ...]:
    """The scalars of all event files of a folder, oldest file first; what cannot be read is as if it were not there."""
    found: list[Scalar] = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        with suppress(OSError, ValueError, LookupError, struct.error, OverflowError):
            content = file.read_bytes() if file.stat().st_size <= _MAX_BYTES else b""
            start = 0
            while start + 12 <= len(content):
                end = start + 12 + int.from_bytes(content[start : start + 8], "little")
                if end + 4 > len(content):
                    break
                found += _event(_fields(content[start + 12 : end]))
                start = end + 4
    return tuple(found)


def _event(fields: dict[int, list[bytes]]) -> Iterator[Scalar]:
    """Event: wall_time = 1 (double), step = 2 (int64), summary = 5. Summary: value = 1. Summary.Value: tag = 1,
    simple_value = 2 (float), tensor = 8. TensorProto: dtype = 1 (1 is float32), tensor_content = 4, float_val = 5."""
    for value in (value for summary in fields.get(5, ()) for value in _fields(summary).get(1, ())):
        known = _fields(value)
        tensor = _fields(known[8][0]) if 8 in known else {}
        is_float = 2 in known or int.from_bytes(tensor.get(1, [b""])[0], "little") == 1
        number = (known.get(2) or tensor.get(4) or tensor.get(5) or [b""])[0]
        if is_float and len(number) == 4:
            at = datetime.fromtimestamp(struct.unpack("<d", fields[1][0])[0], UTC)
            step = int.from_bytes(fields.get(2, [b""])[0], "little")
            yield Scalar(known[1][0].decode(errors="replace"), step, struct.unpack("<f", number)[0], at)


def _fields(content: bytes) -> dict[int, list[bytes]]:
    """The values of a message's fields by their numbers, whole numbers as 10 bytes. Raises ValueError or LookupError
    where it is none."""
    found: dict[int, list[bytes]] = {}
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        if key & 7 == 0:
            number, place = _varint(content, place)
            value = number.to_bytes(10, "little")
        else:
            size, place = _varint(content, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            value, place = content[place : place + size], place + size
        if place > len(content):
            raise ValueError("no protocol buffer, or cut off")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next field begins."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        number, place = number | (byte & 127) << shift, place + 1
        if byte < 128:
            return number, place
    raise ValueError("a number without end")
