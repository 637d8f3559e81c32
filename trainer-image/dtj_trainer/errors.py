"""The ways in which the trainer ends on purpose. Each carries one line for a person, and its exit code."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How this process ended, as the operator's failure semantics read it."""

    DONE = 0
    FAILED = 1
    """An error in the training itself; a traceback was printed."""
    USAGE = 2
    """Bad input: one line has reported which argument or variable, its value and the remedy."""
    PREEMPTED = 42
    """Asked to stop; every task saved the same step first. The code of TensorFlow's own preemption handling."""
    PEER_LOST = 75
    """Another task went away or never came (EX_TEMPFAIL): a follow-up, not a cause."""
    TERMINATED = 143
    """Asked to stop with nothing to save (128 + SIGTERM)."""


class TrainerError(Exception):
    """An expected end. The message is one line: what, where, the value seen, what to do next."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    ag_pass_through = True
    """AutoGraph, which would put lines of the user's code before the message, leaves it alone."""


class UsageError(TrainerError):
    """An argument, a variable or a directory that cannot be used as given."""

    exit_code = ExitCode.USAGE


class DataChanged(UsageError):
    """The held-out examples are not those of the first reading, so that an evaluation would not be one."""


class WorkersDiffer(UsageError):
    """The workers have compared what has to be the same on all of them, and it is not."""


class Preempted(TrainerError):
    """Asked to stop, and all tasks have saved the same step."""

    exit_code = ExitCode.PREEMPTED


class PeerLost(TrainerError):
    """Another task of this job is gone, silent, or never started."""

    exit_code = ExitCode.PEER_LOST


class UnequalCalls(TrainerError):
    """This worker waits in a call that another one, which has completed, never makes."""


class Terminated(TrainerError):
    """Asked to stop where there was nothing to save."""

    exit_code = ExitCode.TERMINATED


class NotSaved(TrainerError):
    """The state that had to be saved could not be: the volume is full, or cannot be written any more."""


class NotFinite(TrainerError):
    """The loss or the weights are NaN or infinite, and the training must not go on."""


FOUND_TOGETHER = (NotFinite, DataChanged, WorkersDiffer)
"""Ends that all workers come to at the same step, from what they have exchanged."""
