"""The file of what a training measured, which `dtj report` draws curves from."""

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dtj_launch import progress
from dtj_launch.metrics_file import MetricsFile


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "worker-0.jsonl"
    monkeypatch.setenv("DTJ_METRICS_FILE", str(path))
    return path


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_holds_a_step_its_time_and_the_finite_numbers_and_a_second_start_adds_to_it(file: Path) -> None:
    MetricsFile().write(20, {"loss": 0.41, "accuracy": float("nan")})
    second = MetricsFile()
    second.write(30, {"loss": float("inf")})
    second.write(40, {"loss": 0.25})
    assert [(line["step"], line["metrics"]) for line in lines(file)] == [(20, {"loss": 0.41}), (40, {"loss": 0.25})]
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines(file))


def test_a_long_training_leaves_a_file_that_grows_ever_more_slowly_and_still_shows_its_beginning(file: Path) -> None:
    written = MetricsFile()
    for step in range(1, 7001):
        written.write(step, {"loss": 1.0})
    steps = [line["step"] for line in lines(file)]
    assert steps[:1000] == [*range(1, 1001)]
    assert {b - a for a, b in pairwise(steps[1000:2000])} == {2}
    assert {b - a for a, b in pairwise(steps[2000:])} == {4}
    assert steps[-1] > 6990


def test_a_disk_that_takes_no_more_is_one_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.mkdir()
    written = MetricsFile()
    for step in (1, 2):
        written.write(step, {"loss": 1.0})
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{file}: cannot be written (Is a directory); the report on this run lacks its curves"
    )


def test_what_a_program_reports_is_written_with_its_speed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_publisher", progress._Publisher())
    for step in (1, 2, 3):
        progress.report(step=step, metrics={"loss": 1 / step}, batch_size=8)
    progress.report(epoch=2)
    found = [line["metrics"] for line in lines(file)]
    assert [each["loss"] for each in found] == [1.0, 0.5, 1 / 3]
    assert found[-1]["examples_per_second"] > 0


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTJ_METRICS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    MetricsFile().write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []
