"""The warnings in the logs of the replicas of a run on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dtj.api.printable import one_line
from dtj.kube.pod_logs import MAX_LOG_LINE_BYTES

PREFIX: Final = "warning: "
"""How the format ``plain`` of trainer and launcher begins such a line. TensorFlow's own begin otherwise."""

SHOWN: Final = 3
_MAX_CHARACTERS: Final = 600


def warnings_of(logs: Iterable[Path]) -> tuple[str, ...]:
    """The first warnings of these files, each once, whichever replicas wrote it, and how many more there are."""
    found: dict[str, None] = {}
    for log in logs:
        with suppress(OSError), log.open(errors="replace") as file:
            while line := file.readline(MAX_LOG_LINE_BYTES):  # a program may print a line without an end
                if line.startswith(PREFIX):
                    found[one_line(line.removeprefix(PREFIX).rstrip("\n"), _MAX_CHARACTERS)] = None
    shown = [*found][:SHOWN]
    more = len(found) - len(shown)
    return (*shown, f"{more} more in the logs") if more else tuple(shown)
