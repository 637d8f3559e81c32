"""CONTRIBUTING.md, typed as it stands: its test fails first, and passes after the named change."""

import os
import subprocess
import sys
from pathlib import Path

from support.snippets import ROOT, Block, blocks

PAGE = list(blocks(ROOT / "CONTRIBUTING.md"))
(TEST,) = (block for block in PAGE if block.language == "python")
FAILING, PASSING = (block for block in PAGE if block.language == "console")


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the file of the page with pytest, in a folder of its own."""
    file = folder / "test_drained.py"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, file, "-q", "-n", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(block: Block) -> list[str]:
    """The output that the page shows after the command."""
    return [line for line in block.text.splitlines() if not line.startswith("$ ")]


def test_the_test_of_the_page_fails_first_with_the_output_that_the_page_shows(tmp_path: Path) -> None:
    done = run(TEST.text, tmp_path)
    assert done.returncode == 1
    for line in printed(FAILING):
        assert line in done.stdout


def test_the_test_of_the_page_passes_after_the_change_that_the_page_names(tmp_path: Path) -> None:
    assert TEST.text.count("restarts.user") == 1
    done = run(TEST.text.replace("restarts.user", "restarts.disruption"), tmp_path)
    assert done.returncode == 0, done.stdout
    for line in printed(PASSING):
        assert line in done.stdout
