"""A volume that takes names of files, and no content, as a full one does: found before anything is trained."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import UsageError
from dtj_trainer.process.output_directories import check_outputs


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        ("--checkpoint-dir", "checkpoint directory"),
        ("--export-dir", "export directory"),
        ("--log-dir", "log directory"),
    ],
)
def test_a_full_volume_is_one_line_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, what: str
) -> None:
    config = parse([f"{flag}={tmp_path}"], {"DTJ_JOB_NAME": "job"})
    check_outputs(config)
    assert not [*tmp_path.iterdir()]

    def on_a_full_volume(**_: object) -> Any:
        return open("/dev/full", "wb")

    monkeypatch.setattr(tempfile, "TemporaryFile", on_a_full_volume)
    with pytest.raises(UsageError) as refusal:
        check_outputs(config)
    assert str(refusal.value) == (
        f"{what} {tmp_path}: cannot be written (No space left on device); make room there, or give another with {flag}"
    )
    assert refusal.value.restart_may_help
