"""The start gate's proof, scaled down: the bench's full run has 100 jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.trainer

BENCH = Path(__file__).resolve().parents[2] / "bench" / "start_gate.py"


def test_tasks_that_start_seconds_apart_all_meet_in_their_first_collective() -> None:
    options = ("--jobs=3", "--max-delay=5", "--parallel=1")
    done = subprocess.run([sys.executable, BENCH, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 jobs of 3" in done.stdout
    assert "failures: 0\n" in done.stdout
