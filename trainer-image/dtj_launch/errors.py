"""The ways in which the launcher itself ends, rather than its program: one line each, and the exit code."""

from __future__ import annotations

USAGE, PEERS_MISSING, NOT_EXECUTABLE, NOT_FOUND = 2, 75, 126, 127

NO_RESTART_HELPS = "dtj: no restart can help"
"""The first line of a termination message, before the error, where another start would end in the same way.

With exit code 2, the operator fails the job at once (dtj/core/pod_failure.py).
"""

CORRUPT = "corrupt"
"""In a termination message, the last line may be a JSON object of this name: what a program found of its replicas."""
CORRUPT_VARIABLE = "DTJ_CORRUPT"
"""What the start before left there, as JSON."""


class LauncherError(Exception):
    """What ends the launcher: what, where, the value seen, what to do."""

    exit_code = USAGE
    restart_may_help = True

    @property
    def last_words(self) -> str:
        """What the termination message has to be."""
        return str(self) if self.restart_may_help else f"{NO_RESTART_HELPS}\n{self}"


class UsageError(LauncherError):
    """An option or a variable that cannot be used as given."""

    restart_may_help = False


class Unavailable(LauncherError):
    """What is needed is not there, or is another's: it may be there at the next start."""


class NotStarted(LauncherError):
    """The peers did not come to the start gate in time."""

    exit_code = PEERS_MISSING
