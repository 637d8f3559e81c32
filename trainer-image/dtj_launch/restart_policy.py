"""Whether a program that has ended is started again in its place, or its end is told. Pure.

Only what the operator would call a follow-up is made good here: a lost peer, one that was told to go, and a kill from
outside for which nobody accounts. An error of the program's own ends the launcher with its exit code, so that the
operator's budgets count it exactly.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from .topology import Part

PEER_LOST = 75
"""EX_TEMPFAIL: the trainer's exit code for a peer that went away."""

PREEMPTED = 42
"""The trainer's exit code when all tasks have saved because one of them was told to go."""

GOOD_RUN_SECONDS = 60.0
"""A program that tells no steps has made progress when it ran for so long."""

_KILLED = 128 + signal.SIGKILL
_COORDINATOR_TRIES = 1
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class End:
    """How one start of the program ended."""

    code: int
    """Its exit code; 128 + number after a signal."""
    seconds: float
    step: int | None
    """The last that it told, 0 before the first; None where it publishes nothing."""
    at_gate: bool
    """Whether it still waited for its peers."""
    told: bool
    """Whether this task was told to go."""
    out_of_memory: bool
    """Whether the kernel killed a process of this container for want of memory meanwhile."""


@dataclass(frozen=True)
class Again:
    """Start it again, after a pause in seconds."""

    pause: float
    why: str


class Policy:
    """Judges end after end of one program."""

    def __init__(self, part: Part, *, most: int, mended_alone: bool = False) -> None:
        """Args:
        most: restarts in a row without progress.
        mended_alone: whether a pod that goes is replaced alone. Then who has saved with it waits for the next one.
        """
        self._mended_alone = mended_alone
        self._part = part
        self._most = most
        self._in_vain = 0
        self._best_step = 0

    def after(self, end: End) -> Again | None:
        """How it goes on after this end; None where the end is to be told."""
        why = self._reason(end)
        if self._advanced(end):
            self._in_vain = 0
        if why is None or self._in_vain >= self._limit(end):
            return None
        pause = min(2.0 ** (self._in_vain - 1), _LONGEST_PAUSE_SECONDS) if self._in_vain else 0.0
        self._in_vain += 1
        return Again(pause, why)

    def _reason(self, end: End) -> str | None:
        if end.told or end.at_gate or self._part is Part.ALONE:
            return None
        if end.code == _KILLED and not end.out_of_memory:
            return "killed from outside"
        if end.code == PEER_LOST and self._part is not Part.SERVER:
            return "a peer was lost"
        if end.code == PREEMPTED and self._mended_alone and self._part is not Part.SERVER:
            return "a peer was told to go, and all have saved"
        return None

    def _advanced(self, end: End) -> bool:
        if end.step is None or self._part is Part.SERVER:
            return end.seconds >= GOOD_RUN_SECONDS
        before, self._best_step = self._best_step, max(self._best_step, end.step)
        return end.step > before

    def _limit(self, end: End) -> int:
        # A server that hangs can only be mended by a new pod: the coordinator must not try for long.
        hanging = self._part is Part.COORDINATOR and end.code == PEER_LOST
        return min(self._most, _COORDINATOR_TRIES) if hanging else self._most
