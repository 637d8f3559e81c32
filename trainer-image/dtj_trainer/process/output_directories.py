"""The directories that a run writes to, proved before anything is trained, and the files that it ends with."""

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dtj_trainer.config.cluster import EVALUATOR
from dtj_trainer.config.parsing import Config
from dtj_trainer.process.errors import UsageError

RESULT = "result.json"


def check_outputs(config: Config) -> None:
    """Creates the directories that this task will write to, and writes a file to each.

    Raises:
        UsageError: one of them cannot be written.
    """
    leads, evaluates = config.cluster.leads, config.cluster.task.role == EVALUATOR
    for what, flag, directory, written in (
        ("checkpoint directory", "--checkpoint-dir", config.checkpoint.directory, leads),
        ("export directory", "--export-dir", config.export_dir, leads),
        ("log directory", "--log-dir", config.log_dir, leads or evaluates),
    ):
        if written and directory is not None:
            _check(what, flag, directory)


def _check(what: str, flag: str, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(
            f"{what} {directory}: cannot be written ({error.strerror}); mount a writable volume there, "
            f"or give another with {flag}"
        ) from None


def write_result(directory: Path, values: Mapping[str, object]) -> Path:
    """Writes result.json whole or not at all; a value of None is left out, NaN and infinity become null."""
    found = {name: as_json(value) for name, value in values.items() if value is not None}
    return write_atomically(directory / RESULT, json.dumps(found, indent=2, allow_nan=False) + "\n")


def as_json(value: object) -> object:
    """The value with None for each number that is not finite: JSON has none, though Python writes them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list | tuple) else value


def write_atomically(path: Path, text: str) -> Path:
    """Replaces the file in one step, so that a reader sees the old text or the new."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        return draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
