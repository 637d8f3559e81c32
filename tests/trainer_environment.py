"""Where the tests of the operator's environment find the trainer's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def trainer_python() -> str:
    """The trainer environment's interpreter; skips the test where it was not set up."""
    python = os.environ.get("DTJ_TRAINER_PYTHON") or str(ROOT / ".venv-trainer" / "bin" / "python")
    if not Path(python).exists():
        pytest.skip("the trainer's environment is not set up: run `make trainer`")
    return python
