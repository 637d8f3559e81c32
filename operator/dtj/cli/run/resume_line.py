"""The step at which a resumed training continues, as its log reports it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from dtj.local.run_directory import RunDirectory

_RESUMED: Final = re.compile(rb"resumed: (step \d+(?: of \d+)?) from ")
"""As the trainer and dtj_trainer.session() log it, in each of their formats."""


class ResumeLine:
    """Reads what the replicas log from now on, until one reports the step. A script of one's own may never do so."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._read = {file: file.stat().st_size for file in directory.replica_logs()}
        self._found = False

    def find(self) -> str | None:
        """``resumed at step 64 of 250``, once."""
        for file in () if self._found else self._directory.replica_logs():
            if match := _RESUMED.search(self._new_lines(file)):
                self._found = True
                return f"resumed at {match[1].decode()}"
        return None

    def _new_lines(self, file: Path) -> bytes:
        """What was added since the last look, up to the end of the last whole line."""
        added = b""
        with suppress(OSError), file.open("rb") as opened:  # a log that cannot be read must not end the run
            opened.seek(self._read.get(file, 0))
            added = opened.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(whole)
        return whole
