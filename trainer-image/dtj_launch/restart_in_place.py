"""Decides whether a program that has ended is started again in its pod, or the launcher reports its end. Pure.

The launcher restarts only what the operator would call a secondary failure: a lost peer, a peer that was asked to stop,
and a kill from outside that nothing else explains. If the program fails by itself, the launcher ends with the program's
exit code, so that the operator's budgets count it exactly.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from .topology import RestartRole

PEER_LOST = 75
"""EX_TEMPFAIL: the trainer's exit code for a peer that went away."""

PREEMPTED = 42
"""The trainer's exit code when all tasks have saved because one of them was asked to stop."""

GOOD_RUN_SECONDS = 60.0
"""A program that reports no steps has made progress if it ran for this long."""

KILLED = 128 + signal.SIGKILL
_COORDINATOR_TRIES = 1
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class ExitRecord:
    """How one start of the program ended."""

    code: int
    """Its exit code; 128 + number after a signal."""
    seconds: float
    step: int | None
    """The last step that it reported, 0 before the first; None if it reports none."""
    at_gate: bool
    """Whether it has waited for its peers in vain."""
    termination_requested: bool
    """Whether this task was asked to stop."""
    out_of_memory: bool
    """Whether the kernel killed a process of this container because there was no memory left meanwhile."""


@dataclass(frozen=True)
class Restart:
    """Start it again, after a pause in seconds."""

    pause: float
    why: str


class Policy:
    """Judges end after end of one program."""

    def __init__(self, restart_role: RestartRole, *, most: int, replace_single_pod: bool = False) -> None:
        """Args:
        most: restarts in a row without progress.
        replace_single_pod: whether a pod that goes is replaced alone. Then a peer that saved with it waits for it.
        """
        self._replace_single_pod = replace_single_pod
        self._restart_role = restart_role
        self._most = most
        self._in_vain = 0
        self._best_step = 0

    def after(self, end: ExitRecord) -> Restart | None:
        """How it goes on after this end; None if the launcher is to report the end."""
        why = self._reason(end)
        if self._advanced(end):
            self._in_vain = 0
        if why is None or self._in_vain >= self._limit(end):
            return None
        pause = min(2.0 ** (self._in_vain - 1), _LONGEST_PAUSE_SECONDS) if self._in_vain else 0.0
        self._in_vain += 1
        return Restart(pause, why)

    def _reason(self, end: ExitRecord) -> str | None:
        if end.termination_requested or end.at_gate or self._restart_role is RestartRole.ALONE:
            return None
        if end.code == KILLED and not end.out_of_memory:
            return "killed from outside"
        if end.code == PEER_LOST and self._restart_role is not RestartRole.SERVER:
            return "a peer was lost"
        if end.code == PREEMPTED and self._replace_single_pod and self._restart_role is not RestartRole.SERVER:
            return "a peer was asked to stop, and all have saved"
        return None

    def _advanced(self, end: ExitRecord) -> bool:
        if end.step is None or self._restart_role is RestartRole.SERVER:
            return end.seconds >= GOOD_RUN_SECONDS
        before, self._best_step = self._best_step, max(self._best_step, end.step)
        return end.step > before

    def _limit(self, end: ExitRecord) -> int:
        # Only a new pod helps a server that hangs: the coordinator must not try for long.
        hanging = self._restart_role is RestartRole.COORDINATOR and end.code == PEER_LOST
        return min(self._most, _COORDINATOR_TRIES) if hanging else self._most
