"""``dtj report``: curves, their axes and their values, and the event files of TensorBoard that they are read from."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from math import log10
from pathlib import Path

import pytest

from dtj.cli.report.drawing import MAX_POINTS, Curve, Points, curves, plot
from dtj.cli.report.evidence import Evidence, Log, Scalar, scalars_of
from dtj.cli.report.page import render_page
from dtj.cli.report.run import read_scalars
from support.job_evidence import job, moment


def scalars(name: str, *values: float, first: int = 1, begin: float = 0) -> tuple[Scalar, ...]:
    """One point a step and a second."""
    return tuple(Scalar(name, first + n, value, moment(begin + n)) for n, value in enumerate(values))


def evidence(*found: Scalar) -> Evidence:
    return Evidence(source="here", taken_at=moment(60), job=job({"state": "Running", "attempt": 1}), scalars=found)


def steps(points: Points) -> list[int]:
    return [point.step for point in points]


def test_held_out_values_are_in_the_plot_of_the_training_and_in_the_table() -> None:
    found = (*scalars("loss", 3, 2, 1), *scalars("val_loss", 4, 3.5, first=2), *scalars("val_auc", 0.1, 0.2))
    loss, alone = curves(found)
    assert (loss.name, steps(loss.points), steps(loss.validation)) == ("loss", [1, 2, 3], [2, 3])
    assert (alone.name, steps(alone.points)) == ("val_auc", [1, 2])
    assert 'class="held-out" points=' in plot(loss)
    table = re.sub(
        r"<[^>]*>", " ", render_page(evidence(*found)).partition('class="values"')[2].partition("</table>")[0]
    )
    assert " ".join(table.split()) == (
        "> metric last lowest highest loss 1 at 3 1 at 3 3 at 1 loss held-out 3.5 at 3 3.5 at 3 4 at 2 "
        "auc held-out 0.2 at 2 0.1 at 1 0.2 at 2"
    )


def test_held_out_values_of_a_log_are_read_once_and_the_evaluation_at_the_end_is_the_last() -> None:
    text = (
        "step 1/9 (11%)  loss 3\nvalidation: step 2/9  val_loss 2.5  in 1s\n"
        "step 3/9 (33%)  loss 2  val_loss 2.5\nstep 9/9 (100%)  loss 1  val_loss 2.5\nheld-out: loss 1.5  (9)\n"
    )
    (loss,) = curves(scalars_of((Log("digits-worker-0", text),)))
    assert [(point.step, point.number) for point in loss.validation] == [(2, 2.5), (9, 1.5)]


def test_steps_that_were_done_again_are_drawn_once_and_what_they_replace_is_pale() -> None:
    found = (*scalars("loss", 9, 8, 7, 6, 5), *scalars("loss", 6.5, 4, 3, first=4, begin=20))
    (loss,) = curves(found)
    assert [(point.step, point.number) for point in loss.points] == [(1, 9), (2, 8), (3, 7), (4, 6.5), (5, 4), (6, 3)]
    assert [[(point.step, point.number) for point in stretch] for stretch in loss.redone] == [[(3, 7), (4, 6), (5, 5)]]
    assert loss.restarts == (3,)
    assert plot(loss).count('polyline class="redone"') == 1


def test_a_restart_that_lost_no_step_is_marked_in_a_curve_without_a_gap() -> None:
    found = (*scalars("loss", 9, 8), *scalars("loss", 7, 6, first=3, begin=20))
    (loss,) = curves(found, (moment(15),))
    assert (steps(loss.points), loss.redone, loss.restarts) == ([1, 2, 3, 4], (), (2,))
    assert 'class="restart"' in plot(loss)


def test_a_curve_keeps_its_first_and_its_last_point() -> None:
    (loss,) = curves(scalars("loss", *map(float, range(5000))))
    assert len(loss.points) == MAX_POINTS
    assert (loss.points[0].step, loss.points[-1].step) == (1, 5000)


@pytest.mark.parametrize(
    ("values", "log"),
    [((1.0, 1.5), False), ((1.0, 5.0), False), ((1.0, 0.001), True), ((0.0, 100.0), False)],
    ids=["close", "a few times", "decades", "not positive"],
)
def test_positive_values_that_span_decades_have_a_log_axis(values: tuple[float, ...], log: bool) -> None:
    drawn = plot(Curve("loss", scalars("loss", *values)))
    labels = [float(label) for label in re.findall(r'text-anchor="end">([\d.e-]+)</text>', drawn)]
    assert (0.1 in labels and 0.01 in labels) == log


@pytest.mark.parametrize("low", [1e-190, 3e-5, 0.3, 7.0])
@pytest.mark.parametrize("ratio", [1.0, 2.5, 99.0, 1e6, 1e100])
def test_an_axis_has_room_for_all_values_and_a_few_lines(low: float, ratio: float) -> None:
    drawn = plot(Curve("loss", scalars("loss", low, low * 10 ** (log10(ratio) / 2), low * ratio)))
    heights = [float(pair.split(",")[1]) for pair in drawn.partition('points="')[2].partition('"')[0].split()]
    assert 100 >= heights[0] >= heights[1] >= heights[2] >= 0
    assert (heights[0] > heights[2]) == (ratio > 1)
    assert 2 <= drawn.count('class="grid"') <= 8


def test_values_beyond_all_reason_are_left_out() -> None:
    found = curves((*scalars("loss", 1e308, -1e308, 2.0, 1.0), *scalars("tiny", 1e-320, 1.0, 2.0)))
    assert [steps(curve.points) for curve in found] == [[3, 4], [2, 3]]


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
