"""A program that a test forks is what a started one is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forks import Forked, ForkServer
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


def test_a_forked_program_has_the_environment_that_it_was_given(tmp_path: Path) -> None:
    for value in ("none", "0"):
        _, _, errors = run(OPERATOR, folder=tmp_path, plain=False, DTJ_OPERATOR_WORKERS=value)
        assert f"'{value}'" in errors or f" {value} " in errors
    code, _, _ = run(OPERATOR, "--help", folder=tmp_path, plain=False)
    assert code == 0


def test_a_forked_program_can_be_killed(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with (tmp_path / "output").open("wb") as out:
        process = start(COMMAND_LINE, ["validate", "-"], os.environ, streams=(ours, out.fileno(), out.fileno()))
    assert process.poll() is None, "reads a manifest that does not end"
    process.kill()
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    os.close(ours)
    os.close(theirs)


def test_a_program_with_other_settings_of_python_is_started(tmp_path: Path) -> None:
    run(COMMAND_LINE, "--version", folder=tmp_path, plain=False)
    with open(os.devnull) as nothing, (tmp_path / "output").open("wb") as out:
        streams = (nothing.fileno(), out.fileno(), out.fileno())
        process = start(COMMAND_LINE, ["--version"], {**os.environ, "PYTHONWARNINGS": "error"}, streams=streams)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(PATIENCE_SECONDS) == 0


def test_threads_may_fork_programs_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    server = ForkServer("ends", (), os.environ)

    def exit_code(number: int) -> int:
        with open(os.devnull, "w") as nothing:
            streams = (nothing.fileno(), nothing.fileno(), nothing.fileno())
            return server.fork([str(number)], os.environ, folder=tmp_path, streams=streams).wait(PATIENCE_SECONDS)

    try:
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(exit_code, range(64))) == list(range(64))
    finally:
        server.stop()
