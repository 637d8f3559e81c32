"""A program that a test forks is what a started one is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forks import Forked
from patience import PATIENCE_SECONDS
from support.programs import COMMAND_LINE, OPERATOR, start

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone"),
]


def run(program: str, *arguments: str, folder: Path, plain: bool, **variables: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    output, errors = folder / "output", folder / "errors"
    with output.open("wb") as out, errors.open("wb") as err, open(os.devnull) as nothing:
        streams = (nothing.fileno(), out.fileno(), err.fileno())
        environ = {**os.environ, "COLUMNS": "80", **variables}
        process = start(program, arguments, environ, streams=streams, folder=folder, plain=plain)
        assert isinstance(process, subprocess.Popen if plain else Forked)
        return process.wait(PATIENCE_SECONDS), output.read_text(), errors.read_text()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"{COMMAND_LINE} --version", 0),
        (f"{COMMAND_LINE} init --help", 0),
        (f"{COMMAND_LINE} validate missing.yaml", 2),
        (f"{COMMAND_LINE} status digits --kubeconfig=missing", 2),
        (f"{OPERATOR} --help", 0),
        (f"{OPERATOR} --workers=none", 2),
        (f"{OPERATOR} --kubeconfig=missing --log-format=json", 2),
    ],
)
def test_a_forked_program_ends_and_writes_as_a_started_one(command: str, code: int, tmp_path: Path) -> None:
    started, forked = (run(*command.split(), folder=tmp_path, plain=plain) for plain in (True, False))
    assert started[0] == code
    assert [_without_times(text) for text in map(str, forked)] == [_without_times(text) for text in map(str, started)]


def _without_times(text: str) -> str:
    return "".join("0" if letter.isdigit() else letter for letter in text)
