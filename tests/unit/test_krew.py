"""The plugin for krew: its manifest, and how its program finds a Python. tests/released installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import krew
import pytest
import yaml

PROGRAM = Path(krew.__file__).parent / "kubectl_dtj.py"


def unpacked(folder: Path) -> Path:
    """The program of an archive whose packages are for Python 3.99 alone."""
    (folder / "lib" / "any").mkdir(parents=True)
    (folder / "lib" / "cp399").mkdir()
    return Path(shutil.copy(PROGRAM, folder / "kubectl-dtj"))


def run(program: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_a_python_that_the_archive_has_no_packages_for_runs_one_that_it_has(tmp_path: Path) -> None:
    program, other = unpacked(tmp_path), tmp_path / "python3.99"
    other.write_text('#!/bin/sh\necho "$@"\n')
    other.chmod(0o755)
    done = run(program, "logs", "a b", path=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{program} logs a b\n"), done.stderr


@pytest.mark.parametrize("named", [False, True], ids=["none", "one that is another version"])
def test_without_a_python_that_fits_one_line_says_which_do(tmp_path: Path, named: bool) -> None:
    program = unpacked(tmp_path)
    if named:
        (tmp_path / "python3.99").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        os.chmod(tmp_path / "python3.99", 0o755)
    done = run(program, "version", path=tmp_path)
    assert (done.returncode, done.stderr) == (2, "kubectl dtj: needs CPython; install one of python3.99\n")


def test_the_manifest_names_version_address_and_checksum_of_each_archive() -> None:
    text = krew.manifest({"linux-arm64": "ab" * 32}, version="1.2.3", repository="https://code.example/a/b")
    spec = yaml.safe_load(text)["spec"]
    assert spec["version"] == "v1.2.3"
    assert spec["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
            "uri": "https://code.example/a/b/releases/download/v1.2.3/kubectl-dtj-1.2.3-linux-arm64.tar.gz",
            "sha256": "ab" * 32,
            "bin": "kubectl-dtj",
        }
    ]
