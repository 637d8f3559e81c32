"""`--self-check`: the libraries that are installed fit, and one that does not is named in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.cluster import DEADLINE, inherited

pytestmark = pytest.mark.trainer

RENAMED = """
import sys
import keras
del keras.layers.Layer.{name}
sys.argv = ["dtj_trainer", "--self-check"]
from dtj_trainer.__main__ import main
main()
"""


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=inherited(), cwd=folder, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


def test_the_installed_libraries_fit(tmp_path: Path) -> None:
    ended = python("-m", "dtj_trainer", "--self-check", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.startswith("self-check: ")
    assert ended.stdout.count("\n") == 1


def test_a_name_that_is_gone_is_one_line_with_the_version(tmp_path: Path) -> None:
    ended = python("-c", RENAMED.format(name="_flatten_layers"), folder=tmp_path)
    assert ended.returncode == 1
    assert all(line.startswith("self-check: ") for line in ended.stdout.splitlines()), ended.stdout
    assert "_flatten_layers" in ended.stdout
