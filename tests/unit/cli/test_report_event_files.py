"""Reading TensorBoard's event files without TensorBoard."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path

from dtj.cli.report.run import read_scalars


def message(*fields: tuple[int, int, bytes]) -> bytes:
    """A protocol buffer of (field, wire type, value)."""
    out = b""
    for number, kind, value in fields:
        out += bytes([number << 3 | kind]) + (bytes([len(value)]) if kind == 2 else b"") + value
    return out


def scalar(step: int, name: str, value: float, *, simple: bool = False) -> bytes:
    """An event as tf.summary.scalar writes it, or as its older form did."""
    number = struct.pack("<f", value)
    tensor = message((1, 0, b"\x01"), (2, 2, b""), (5 if step % 2 else 4, 2, number))
    held = (2, 5, number) if simple else (8, 2, tensor)
    summary = message((1, 2, message((1, 2, name.encode()), held)))
    return record(message((1, 1, struct.pack("<d", 1.7e9)), (2, 0, bytes([step])), (5, 2, summary)))


def record(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + b"crc." + data + b"crc."


def write(folder: Path, content: bytes, name: str = "events.out.tfevents.1") -> Path:
    (folder / name).write_bytes(content)
    return folder


def test_points_have_names_steps_values_and_times(tmp_path: Path) -> None:
    content = record(message((3, 2, b"brain.Event:2"))) + scalar(1, "loss", 0.5) + scalar(2, "loss", 0.25)
    found = read_scalars(write(tmp_path, content + scalar(3, "accuracy", 0.75, simple=True)))
    assert [(each.name, each.step, each.number) for each in found] == [
        ("loss", 1, 0.5),
        ("loss", 2, 0.25),
        ("accuracy", 3, 0.75),
    ]
    assert found[0].at == datetime.fromtimestamp(1.7e9, UTC)


def test_a_file_that_is_still_written_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    content = scalar(1, "loss", 0.5) + scalar(2, "loss", 0.25)
    for cut in (1, 10, 20, 40):
        assert [point.step for point in read_scalars(write(tmp_path, content[:-cut]))] == [1]


def test_files_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, scalar(5, "loss", 0.1), "events.out.tfevents.2")
    write(tmp_path, scalar(4, "loss", 0.2), "events.out.tfevents.1")
    write(tmp_path, b"?", "result.json")
    assert [point.step for point in read_scalars(tmp_path)] == [4, 5]


def test_what_is_no_event_file_gives_no_points(tmp_path: Path) -> None:
    assert read_scalars(tmp_path / "no") == ()
    for garbage in (b"", b"\xff" * 64, record(b"\xff" * 30), record(message((1, 1, b"12345678"))), b"\x00" * 64):
        assert read_scalars(write(tmp_path, garbage)) == ()
