"""``dtj report --run A --run B``: runs next to each other on one page."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import click
import pytest
import yaml

from builders import manifest
from dtj.cli.main import cli
from dtj.cli.report.command import MAX_RUNS
from dtj.local import run_directory
from dtj.local.run_directory import RunDirectory
from support.job_evidence import HOSTILE, SECRET, moment, progress_log

pytestmark = pytest.mark.unit


def a_run(folder: Path, name: str, *args: str, env: str = "5", hour: int = 0) -> RunDirectory:
    """A run of a job with these arguments that has printed its progress."""
    directory = run_directory.create(folder / "dtj-runs", job=name, now=moment(0) + timedelta(hours=hour))
    container = {"name": "trainer", "image": "x:1", "args": [*args], "env": [{"name": "DEPTH", "value": env}]}
    directory.manifest.write_text(yaml.safe_dump(manifest(name, template={"spec": {"containers": [container]}})))
    log = progress_log(steps=range(20, 100, 20), begin=0, stamped=False, start_loss=2.0 + hour)
    directory.replica_log("worker-0").write_text(log + f"held-out: loss 0.{hour}5\n{HOSTILE}\n")
    return directory


def report(*words: object) -> int:
    return int(cli.main(["report", *map(str, words)], standalone_mode=False) or 0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def section(page: str, heading: str) -> str:
    return page.partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0]


def row(page: str, name: str) -> list[str]:
    found = re.search(rf'<tr><td class="dim">{re.escape(name)}</td>(.*?)</tr>', page)
    return re.findall("<td>(.*?)</td>", found[1]) if found is not None else []


def test_curves_values_and_what_differs_are_next_to_each_other(here: Path) -> None:
    a_run(here, "small", "--epochs=3", "--seed=1")
    a_run(here, "large", "--epochs=9", "--seed=1", hour=1)
    assert report("--run", "small", "--run", "large") == 0
    page = (here / "dtj-report-comparison.html").read_text()
    loss = section(page, "Training").partition("<h3>loss</h3>")[2].partition("<h3>")[0]
    assert "trained run0" in loss
    assert "trained run1" in loss
    assert row(section(page, "Last values"), "loss") == ["0.5 at 80", "0.75 at 80"]
    assert row(section(page, "Last values"), "loss, held-out") == ["0.05 at 80", "0.15 at 80"]
    assert row(section(page, "Different configuration"), "Arguments: --epochs") == ["3", "9"]
    assert row(section(page, "Same configuration"), "Arguments: --seed") == ["1", "1"]
    assert row(section(page, "Same configuration"), "Environment: DEPTH") != []


def test_runs_of_one_job_have_their_times_as_names(here: Path) -> None:
    older, newer = a_run(here, "digits"), a_run(here, "digits", hour=2)
    assert report("--run", older.path, "--run", "digits", "-o", "x.html") == 0
    title = (here / "x.html").read_text().partition("<title>")[2].partition("</title>")[0]
    assert title == f"digits {older.path.name} and digits {newer.path.name}"


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ({"args": ("--token", SECRET)}, {"args": ("--token", "other")}, "Arguments: other"),
        ({"env": SECRET}, {"env": "other"}, "Environment: DEPTH"),
    ],
    ids=["argument", "variable"],
)
def test_values_that_are_left_out_are_not_taken_for_the_same(
    here: Path, first: dict[str, object], second: dict[str, object], name: str
) -> None:
    for job, given in (("a", first), ("b", second), ("c", first)):
        a_run(here, job, *given.get("args", ()), env=str(given.get("env", "5")))  # type: ignore[misc]
    assert report("--run", "a", "--run", "b", "-o", "differ.html") == 0
    assert report("--run", "a", "--run", "c", "-o", "alike.html") == 0
    differ, alike = (here / "differ.html").read_text(), (here / "alike.html").read_text()
    assert SECRET not in differ + alike
    assert row(section(differ, "Different configuration"), name) != []
    assert row(section(alike, "Same configuration"), name) != []


def test_nothing_in_the_page_acts_or_comes_from_elsewhere(here: Path) -> None:
    a_run(here, "a")
    a_run(here, "b")
    assert report("--run", "a", "--run", "b", "-o", "x.html") == 0
    page = (here / "x.html").read_text()
    assert "default-src 'none'" in page
    for word in ("<script", "<img", "src=", "href=", "url(", "@import", "<link"):
        assert word not in page


def test_a_run_without_a_metric_keeps_the_colours_of_the_others(here: Path) -> None:
    a_run(here, "a").replica_log("worker-0").write_text("nothing\n")
    a_run(here, "b")
    assert report("--run", "a", "--run", "b", "-o", "x.html") == 0
    drawn = section((here / "x.html").read_text(), "Training")
    assert "trained run1" in drawn
    assert "run0" not in drawn


def test_the_same_run_twice_is_refused_by_whatever_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = a_run(here, "a")
    with pytest.raises(click.UsageError, match=r"^--run a: is given twice"):
        report("--run", "a", "--run", "a")
    path = os.path.relpath(directory.path, here)
    assert report("--run", "a", "--run", path) == 2
    assert capsys.readouterr().err == f"--run {path}: is the same run as --run a; name another one\n"


def test_more_runs_than_colours_are_refused() -> None:
    words = [word for number in range(MAX_RUNS + 1) for word in ("--run", f"r{number}")]
    with pytest.raises(click.UsageError, match=rf"at most {MAX_RUNS} runs, not {MAX_RUNS + 1}"):
        report(*words)


def test_a_run_that_is_not_there_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(here, "a")
    assert report("--run", "a", "--run", "nowhere") == 2
    assert capsys.readouterr().err.startswith("--run nowhere: neither the folder of a run nor the name of a job")
