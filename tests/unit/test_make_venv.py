"""`scripts/make_venv.sh`, which makes the environments of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.snippets import ROOT

pytestmark = pytest.mark.unit

SCRIPT = ROOT / "scripts" / "make_venv.sh"


def test_an_active_environment_can_be_replaced_by_itself(tmp_path: Path) -> None:
    environment, lock = tmp_path / "venv", tmp_path / "lock"
    lock.write_text("")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    active = {**os.environ, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        [SCRIPT, environment, "an environment", lock], env=active, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (environment / "bin" / "pip").exists()
