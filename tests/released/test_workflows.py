"""The workflows, read by actionlint: fields, expressions and contexts that exist. `make lint` runs zizmor on them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testbed import binaries

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    actionlint = binaries.ensure(("actionlint",))["actionlint"]
    # What it calls where it is installed is left out: the result is the same on each machine.
    done = subprocess.run(
        [actionlint, "-shellcheck=", "-pyflakes=", *WORKFLOWS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
