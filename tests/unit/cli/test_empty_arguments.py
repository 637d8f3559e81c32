"""Arguments that are empty, as that of a shell variable which is not set, that are too long, or that are no text:
each is one line, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dtj.cli.main import cli


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["init", ""], "an argument"),
        (["run", "job.yaml", "--output-dir="], "--output-dir="),
        (["run", "job.yaml", "--trainer-python", ""], "--trainer-python"),
        (["submit", "job.yaml", "--code="], "--code="),
        (["report", "-o", "", "--run=first"], "-o"),
        (["report", "--output-dir=", "--run=first"], "--output-dir="),
        (["explain", "job.yaml", "--profiles="], "--profiles="),
        (["list", "--kubeconfig="], "--kubeconfig="),
        (["list", "-n", ""], "-n"),
        (["validate", "job.yaml", ""], "an argument"),
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError) as refused:
        cli.main(arguments, standalone_mode=False)
    assert refused.value.format_message() == f"{named}: empty; give a value, or leave it out"
    assert list(tmp_path.iterdir()) == []


LONG = "é" * 128


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "job.yaml", "--trainer-python", LONG], "--trainer-python"),
        (["run", "job.yaml", f"--output-dir=here/{LONG}/x"], "--output-dir="),
        (["run", "--cluster", "job.yaml", "--code", LONG], "--code"),
        (["status", "digits", f"--kubeconfig={LONG}"], "--kubeconfig="),
        (["logs", "--run", LONG], "--run"),
        (["resume", "digits", LONG], "an argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_name_that_no_file_system_takes_is_refused(arguments: list[str], named: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main(arguments, standalone_mode=False)
    assert refused.value.format_message() == (
        f"{named}: has a name of 256 bytes; names of files and objects have 255 at most"
    )


@pytest.mark.parametrize("command", ["status", "logs", "resume", "suspend", "delete", "wait", "tensorboard", "report"])
@pytest.mark.parametrize("name", ["\udcff", "a\nb", "dtj/\x1b[2J"])
def test_what_no_terminal_shows_is_no_name_of_a_job(command: str, name: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main([command, name], standalone_mode=False)
    assert refused.value.format_message().endswith(
        "cannot be the name of a job: use lower-case letters, digits and '-'"
    )
