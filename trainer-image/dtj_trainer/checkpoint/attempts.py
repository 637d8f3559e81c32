"""How often a training failed after the checkpoint that it had restored: a record next to the copies in memory.

Without it, a copy that is sound as a file and bad as a state would be restored again and again. Standard library only.
"""

import json
import logging
from contextlib import suppress
from pathlib import Path

from dtj_trainer.local_files import write_atomically

log = logging.getLogger(__name__)

_NAME = "attempts.json"
_ENOUGH = 2
"""Failures in a row without a newer checkpoint, after which an older one is taken."""


def begun(directory: Path, step: int) -> None:
    """Notes that a run begins with the checkpoint of this step."""
    if _read(directory)[0] != step:
        _write(directory, step, 0)


def failed(directory: Path, newest: int) -> None:
    """Notes that the run failed.

    Args:
        newest: the step of the newest checkpoint that it restored, or wrote in full.
    """
    step, failures = _read(directory)
    _write(directory, step, failures + 1 if newest <= step else 0)


def given_up(directory: Path) -> int:
    """The step of the checkpoint after which enough runs failed; 0: there is none."""
    step, failures = _read(directory)
    return step if failures >= _ENOUGH else 0


def _read(directory: Path) -> tuple[int, int]:
    with suppress(OSError, ValueError, LookupError, TypeError):
        found = json.loads((directory / _NAME).read_text())
        return int(found["restored"]), int(found["failures"])
    return 0, 0


def _write(directory: Path, step: int, failures: int) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / _NAME, json.dumps({"restored": step, "failures": failures}))
    except OSError as error:
        log.warning(f"memory for checkpoints {directory}: what was restored is not noted ({error.strerror})")
