"""Reads the scalars of TensorBoard's event files, which hold a point for each call of the trainer's loop.

Their formats are TFRecord (length, checksum, data, checksum) around protocol buffers
(``tensorflow/core/util/event.proto``); of these the few fields of a scalar are read here, since TensorBoard is not in
this environment. A file that is still being written ends in the middle of a record, and is read up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dtj.cli.report.evidence import Scalar

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
