"""``dtj report``: curves, their axes and their values."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log10

import pytest

from dtj.cli.report.drawing import MAX_POINTS, Curve, Points, curves, plot
from dtj.cli.report.evidence import Evidence, Log, Scalar, scalars_of
from dtj.cli.report.page import configuration, render_page
from dtj.cli.report.redaction import NUMBERS, REDACTED, WORDS, without_secrets
from dtj_trainer.config.options import options_of
from dtj_trainer.config.parsing import OWNERS
from support.job_evidence import job, moment

pytestmark = pytest.mark.unit


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
    assert 'class="held-out" points=' in plot(loss, number=0)
    table = re.sub(
        r"<[^>]*>", " ", render_page(evidence(*found)).partition('class="values"')[2].partition("</table>")[0]
    )
    assert " ".join(table.split()) == (
        "> metric last lowest highest loss 1 at 3 1 at 3 3 at 1 loss held-out 3.5 at 3 3.5 at 3 4 at 2 "
        "auc held-out 0.2 at 2 0.1 at 1 0.2 at 2"
    )


def test_the_evaluation_at_the_end_is_the_last_held_out_value() -> None:
    (loss,) = curves((*scalars("loss", 3, 2, 1), *scalars("held_out/loss", 1.5, first=3)))
    assert [(point.step, point.value) for point in loss.validation] == [(3, 1.5)]


def test_held_out_values_of_a_log_are_read_once() -> None:
    text = (
        "step 1/9 (11%)  loss 3\nvalidation: step 2/9  val_loss 2.5  in 1s\n"
        "step 3/9 (33%)  loss 2  val_loss 2.5\nstep 9/9 (100%)  loss 1  val_loss 2.5\nheld-out: loss 1.5  (9)\n"
    )
    (loss,) = curves(scalars_of((Log("digits-worker-0", text),)))
    assert [(point.step, point.value) for point in loss.validation] == [(2, 2.5), (9, 1.5)]


def test_steps_that_were_done_again_are_drawn_once_and_what_they_replace_is_pale() -> None:
    found = (*scalars("loss", 9, 8, 7, 6, 5), *scalars("loss", 6.5, 4, 3, first=4, begin=20))
    (loss,) = curves(found)
    assert [(point.step, point.value) for point in loss.points] == [(1, 9), (2, 8), (3, 7), (4, 6.5), (5, 4), (6, 3)]
    assert [[(point.step, point.value) for point in stretch] for stretch in loss.redone] == [[(3, 7), (4, 6), (5, 5)]]
    assert loss.restarts == (3,)


def test_a_restart_that_lost_no_step_is_marked_in_a_curve_without_a_gap() -> None:
    found = (*scalars("loss", 9, 8), *scalars("loss", 7, 6, first=3, begin=20))
    (loss,) = curves(found, (moment(15),))
    assert (steps(loss.points), loss.redone, loss.restarts) == ([1, 2, 3, 4], (), (2,))
    assert 'class="restart"' in plot(loss, number=0)


def test_a_curve_keeps_its_first_and_its_last_point() -> None:
    (loss,) = curves(scalars("loss", *map(float, range(5000))))
    assert len(loss.points) == MAX_POINTS
    assert (loss.points[0].step, loss.points[-1].step) == (1, 5000)


@pytest.mark.parametrize(
    ("values", "log", "chosen"),
    [((1.0, 1.5), False, False), ((1.0, 5.0), True, False), ((1.0, 0.001), True, True), ((0.0, 100.0), False, False)],
    ids=["close", "a few times", "decades", "not positive"],
)
def test_positive_values_have_a_log_axis_which_is_chosen_if_they_span_decades(
    values: tuple[float, ...], log: bool, chosen: bool
) -> None:
    drawn = plot(Curve("loss", scalars("loss", *values)), number=3)
    assert ('class="plot log"' in drawn, " checked>" in drawn) == (log, chosen)


@pytest.mark.parametrize("low", [1e-190, 3e-5, 0.3, 7.0])
@pytest.mark.parametrize("ratio", [2.5, 99.0, 1e6, 1e100])
def test_a_log_axis_has_room_for_all_values_and_a_few_lines(low: float, ratio: float) -> None:
    curve = Curve("loss", scalars("loss", low, low * 10 ** (log10(ratio) / 2), low * ratio))
    drawn = plot(curve, number=0).partition('class="plot log"')[2]
    heights = [float(pair.split(",")[1]) for pair in drawn.partition('points="')[2].partition('"')[0].split()]
    assert 100 >= heights[0] > heights[1] > heights[2] >= 0
    assert 2 <= drawn.count('class="grid"') <= 8


def test_values_beyond_all_reason_are_left_out() -> None:
    found = curves((*scalars("loss", 1e308, -1e308, 2.0, 1.0), *scalars("tiny", 1e-320, 1.0, 2.0)))
    assert [steps(curve.points) for curve in found] == [[3, 4], [2, 3]]


# -- configuration ----------------------------------------------------------------------------------------------


def settings(args: list[str]) -> dict[str, str]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "x:1", "args": args}]}}
    known = replace(evidence(), job=job({"state": "Running"}, template=template))
    return {each.name: each.value for each in configuration(without_secrets(known))}


def test_numbers_and_words_of_the_trainers_options_are_shown_and_no_other_argument() -> None:
    args = ["--epochs=3", "--learning-rate", "1e-3", "--task=text-classification", "--data-dir=/data/plain", "plain"]
    found = settings(args)
    assert {name: found[name] for name in ("--epochs", "--learning-rate", "--task")} == {
        "--epochs": "3",
        "--learning-rate": "1e-3",
        "--task": "text-classification",
    }
    assert found["others"] == REDACTED
    assert "plain" not in str(found)


def test_an_option_with_a_value_that_the_trainer_would_refuse_is_left_out() -> None:
    assert "s3cret" not in str(settings(["--epochs=s3cret", "--task", "s3cret", "--seed", "--learning-rate=-s3cret"]))


def test_the_options_that_are_shown_take_no_text_of_the_users() -> None:
    known = {option.flag: option for owner in OWNERS for option in options_of(owner).values()}
    assert known.keys() >= NUMBERS | WORDS
    for flag in sorted(NUMBERS | WORDS):
        with pytest.raises(ValueError, match=r".+"):
            known[flag].parse("s3cret")
