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

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""

_MAX_BYTES: Final = 2**26
"""A file that is larger is no log of scalars alone."""


def read_scalars(folder: Path) -> tuple[Scalar, ...]:
    """The scalars of all event files of a folder, oldest file first; what cannot be read is as if it were not there."""
    found: list[Scalar] = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        with suppress(OSError):
            if file.stat().st_size <= _MAX_BYTES:
                found += _scalars(file.read_bytes())
    return tuple(found)


def _scalars(content: bytes) -> Iterator[Scalar]:
    with suppress(ValueError, struct.error, IndexError, OverflowError, OSError):
        for record in _records(content):
            yield from _event(record)


def _records(content: bytes) -> Iterator[bytes]:
    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length
        if end + 4 > len(content):
            return
        yield content[start + 12 : end]
        start = end + 4


def _event(record: bytes) -> Iterator[Scalar]:
    """Event: wall_time = 1 (double), step = 2 (int64), summary = 5."""
    fields = dict(_fields(record))
    when, step, summary = fields.get(1), fields.get(2, 0), fields.get(5)
    if not isinstance(when, bytes) or not isinstance(step, int) or not isinstance(summary, bytes):
        return
    at = datetime.fromtimestamp(struct.unpack("<d", when)[0], UTC)
    for number, value in _fields(summary):
        if number == 1 and isinstance(value, bytes) and (named := _named_value(value)) is not None:
            yield Scalar(named[0], step, named[1], at)


def _named_value(content: bytes) -> tuple[str, float] | None:
    """Summary.Value: tag = 1, simple_value = 2 (float), tensor = 8; None where it is no scalar."""
    fields = dict(_fields(content))
    tag, simple, tensor = fields.get(1), fields.get(2), fields.get(8)
    if not isinstance(tag, bytes):
        return None
    number = simple if isinstance(simple, bytes) else _tensor_value(tensor) if isinstance(tensor, bytes) else None
    return (tag.decode(errors="replace"), struct.unpack("<f", number)[0]) if number is not None else None


def _tensor_value(content: bytes) -> bytes | None:
    """TensorProto: dtype = 1 (1 is float32), tensor_content = 4, float_val = 5; a scalar's four bytes."""
    fields = dict(_fields(content))
    values = (value for value in (fields.get(4), fields.get(5)) if isinstance(value, bytes) and len(value) == 4)
    return next(values, None) if fields.get(1) == 1 else None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in order. Raises ValueError or IndexError where it is none."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, place = _varint(content, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + size > len(content):
            raise ValueError("cut off")
        yield key >> 3, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next field begins."""
    number, shift = 0, 0
    while True:
        byte = content[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
        if shift > 63:
            raise ValueError("a number without end")
