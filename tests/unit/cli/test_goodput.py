"""What a person sees of where a job's time went."""

from __future__ import annotations

import pytest

from dtj.api.goodput import Goodput, Seconds, Use
from dtj.api.json import JsonObject
from dtj.cli.common.job_view import goodput_words
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.page import render_page
from support.job_evidence import job, moment

HOURS = {
    Use.TRAINING: 20400,
    Use.REPEATED: 893,
    Use.CHECKPOINTING: 670,
    Use.STARTING: 357,
    Use.OTHER: 1,
    Use.QUEUED: 2400,
}


@pytest.mark.parametrize(
    ("seconds", "percent", "words"),
    [
        (HOURS, 91, "91% of 6h12m: repeated 4%, checkpoints 3%, starting 2%; before that queued 40m00s"),
        ({Use.TRAINING: 60, Use.SUSPENDED: 30}, 100, "100% of 1m00s; in between suspended 30s"),
        ({Use.OTHER: 60}, None, ""),
    ],
)
def test_the_line_says_what_was_no_training(seconds: dict[Use, int], percent: int | None, words: str) -> None:
    assert goodput_words(Goodput(percent=percent, seconds=Seconds.of(seconds))) == words


@pytest.mark.parametrize("percent", [75, None])
def test_the_report_draws_it_for_a_job_that_has_trained(percent: int | None) -> None:
    goodput: JsonObject = {"percent": percent, "seconds": {"training": 90, "checkpointing": 20, "recovering": 10}}
    status: JsonObject = {"state": "Running", "attempt": 1, "goodput": goodput}
    page = render_page(Evidence(source="here", taken_at=moment(60), job=job(status)))
    bars = (
        '<rect class="running" x="0.000%" y="3" width="75.000%"',
        '<rect class="saving" x="75.000%" y="3" width="16.667%"',
        '<rect class="starting" x="91.667%" y="3" width="8.333%"',
    )
    assert [bar in page for bar in (*bars, "75% of 2m00s: checkpoints 17%, recovering 8%")] == 4 * [bool(percent)]
