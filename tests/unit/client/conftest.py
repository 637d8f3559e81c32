"""What the tests of submitted code share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtj.client.code_pack import CodePack, pack


@pytest.fixture
def packed(tmp_path: Path) -> CodePack:
    """A directory with one program, packed."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('trained')")
    return pack(tmp_path / "code")
