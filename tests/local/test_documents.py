"""What a newcomer types, as the documents say it, in their order: it works, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.local_runs import MARK, marked_processes, new_mark
from support.snippets import ROOT, blocks
from trainer_environment import trainer_python

pytestmark = pytest.mark.trainer


def commands(file: str) -> Iterator[list[str]]:
    """The commands of a document that need this machine alone: of ``dtj``, and ``cd``."""
    for block in blocks(ROOT / file):
        if block.language not in ("bash", "indented") or block.needs:
            continue
        for line in block.text.splitlines():
            for part in line.partition("#")[0].split("&&"):
                words = part.split()
                if words and (words[0] == "cd" or Path(words[0]).name == "dtj") and "--cluster" not in words:
                    yield words


@pytest.mark.parametrize("file", ["docs/quickstart-laptop.md", "docs/tasks.md"])
def test_the_commands_of_a_document_work_one_after_the_other(tmp_path: Path, file: str) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    mark, folder, typed = new_mark(), tmp_path, list(commands(file))
    assert ["run"] in [words[1:2] for words in typed], "a document in which nothing is run"
    for program, *words in typed:
        if program == "cd":
            folder /= words[0]
            continue
        done = subprocess.run(
            [sys.executable, "-m", "dtj.cli.main", *words],
            cwd=folder,
            env={**os.environ, "DTJ_TRAINER_PYTHON": trainer_python(), MARK: mark},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    assert marked_processes(mark) == []
