"""How commands end that can print nothing more, or that have lost the directory they run in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders import manifest
from support.local_runs import write


def run(folder: Path, *arguments: object, shell: str) -> subprocess.CompletedProcess[str]:
    """A command of ``dtj``, as ``"$@"`` of a line of bash."""
    command = ["bash", "-c", shell, "bash", sys.executable, "-m", "dtj.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, env=os.environ, check=False)


@pytest.mark.parametrize("arguments", ["--help", "explain --help", "explain job.yaml", "init new", "nonsense"], ids=str)
def test_a_command_whose_reader_has_gone_ends_as_by_that_signal(tmp_path: Path, arguments: str) -> None:
    write(tmp_path, manifest("tiny"))
    done = run(tmp_path, *arguments.split(), shell='set -o pipefail; { sleep 0.5; "$@" 2>&1; } | true')
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", ["--help", "explain job.yaml", "submit -o yaml job.yaml"], ids=str)
def test_a_full_disk_is_one_line(tmp_path: Path, arguments: str) -> None:
    write(tmp_path, manifest("tiny"))
    done = run(tmp_path, *arguments.split(), shell='"$@" >/dev/full')
    assert (done.returncode, done.stderr) == (74, "the output cannot be written: No space left on device\n")
    both = run(tmp_path, *arguments.split(), shell='"$@" >/dev/full 2>&1')
    assert both.returncode == 74


@pytest.mark.parametrize("arguments", ["init", "run ../job.yaml"])
def test_a_directory_that_was_removed_is_one_line(tmp_path: Path, arguments: str) -> None:
    write(tmp_path, manifest("tiny"))
    (tmp_path / "gone").mkdir()
    done = run(tmp_path / "gone", *arguments.split(), shell='rmdir ../gone; "$@"')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the current directory has been removed: change to another one\n"
