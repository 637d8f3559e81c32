"""What the trainer and the launcher warned of in the logs of a run on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from dtj.api.printable import one_line
from dtj.local.replica_logs import ReplicaLog

PREFIX: Final = "warning: "
"""How the format ``plain`` of trainer and launcher begins such a line. TensorFlow's own begin otherwise."""

SHOWN: Final = 3
_MAX_CHARACTERS: Final = 600


def warnings_of(logs: Iterable[ReplicaLog]) -> tuple[str, ...]:
    """The first warnings of these logs, each once, whichever replicas wrote it, and how many more there are."""
    found: dict[str, None] = {}
    for log in logs:
        with suppress(OSError):
            found |= {
                one_line(line.text.removeprefix(PREFIX), _MAX_CHARACTERS): None
                for line in log.read()
                if line.text.startswith(PREFIX)
            }
    shown = [*found][:SHOWN]
    more = len(found) - len(shown)
    return (*shown, f"{more} more in the logs") if more else tuple(shown)
