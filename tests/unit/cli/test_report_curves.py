"""``dtj report``: curves, their axes and their values, and the metrics files that they are read from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import log10

import pytest

from builders import at
from dtj.cli.report.drawing import MAX_POINTS, Curve, Points, curves, plot
from dtj.cli.report.evidence import SPEED, Evidence, Scalar, scalars_in
from dtj.cli.report.page import render_page
from support.job_evidence import job, metrics_file, moment


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


def test_held_out_values_that_are_repeated_are_drawn_once_and_the_evaluation_at_the_end_is_the_last() -> None:
    val = {"val_loss": 2.5}
    logged = [(1, {"loss": 3}), (2, {"loss": 2.7} | val), (3, {"loss": 2} | val), (9, {"loss": 1} | val)]
    at_the_end = (9, {"held_out/loss": 1.5})
    lines = (json.dumps({"step": step, "metrics": metrics}) for step, metrics in (*logged, at_the_end))
    (loss,) = curves(scalars_in(["\n".join(lines)]))
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


def test_a_metrics_file_that_is_still_written_is_read_up_to_its_last_whole_line() -> None:
    text = metrics_file(steps=range(1, 3), begin=0)
    points = [(1, "loss", 2.3, moment(0)), (1, "accuracy", 0.0, moment(0)), (1, SPEED, 2500.0, moment(0))]
    for cut in (2, 10, 40):
        assert [(each.step, each.name, each.number, each.at) for each in scalars_in([text[:-cut]])] == points


def test_metrics_of_two_leaders_follow_each_other_in_time() -> None:
    first, second = (metrics_file(steps=range(begin, begin + 2), begin=begin) for begin in (1, 2))
    (loss, *_) = curves(scalars_in([second, first]))
    assert [[point.step for point in stretch] for stretch in (loss.points, *loss.redone)] == [[1, 2, 2, 3]]


def test_a_page_without_curves_says_where_they_are() -> None:
    known = replace(evidence(), job=job({"state": "Running", "attempt": 1, "startTime": at(0)}))
    missing = render_page(known).partition("<h2>Not here")[2]
    assert "dtj tensorboard digits shows them" in missing
    assert "tensorboard --logdir=FOLDER" in render_page(replace(known, on_this_machine=True))
    assert "curves" not in render_page(replace(known, scalars=scalars("loss", 2, 1))).partition("<h2>Not here")[2]


@pytest.mark.parametrize("zone", ["", "Z", "+00:00"])
def test_a_time_without_a_zone_in_a_metrics_file_is_utc(zone: str) -> None:
    lines = [
        f'{{"step": {step}, "metrics": {{"loss": 1}}, "time": "{moment(step):%Y-%m-%dT%H:%M:%S}{zone}"}}'
        for step in (2, 1)
    ]
    found = scalars_in(["\n".join(lines)])
    assert [(each.step, each.at) for each in found] == [(1, moment(1)), (2, moment(2))]
    (loss,) = curves(found, [moment(1.5)])
    assert loss.restarts == (1,)
