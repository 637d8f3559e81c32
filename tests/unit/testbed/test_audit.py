"""How the testbed reads the audit log while the API server writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.audit import AuditLog

pytestmark = pytest.mark.unit


def test_a_mark_within_a_line_that_is_being_written_leaves_that_line_out(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_bytes(b"one\ntw")
    mark = log.mark()
    log.path.write_bytes(b"one\ntwo\nthree\n")
    assert list(log._lines(mark)) == ["three\n"]
