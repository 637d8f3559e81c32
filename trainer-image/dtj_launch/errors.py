"""The ways in which the launcher itself ends, rather than its program: one line each, and the exit code."""

from __future__ import annotations

USAGE, PEERS_MISSING, NOT_EXECUTABLE, NOT_FOUND = 2, 75, 126, 127


class LauncherError(Exception):
    """What ends the launcher: what, where, the value seen, what to do."""

    exit_code = USAGE


class UsageError(LauncherError):
    """An option or a variable that cannot be used as given."""


class NotStarted(LauncherError):
    """The peers did not come to the start gate in time."""

    exit_code = PEERS_MISSING
