"""The ways in which the trainer ends on purpose. Each carries one line for a person, and its exit code."""

import errno
import json
import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from dtj_launch import progress
from dtj_launch.errors import CORRUPT, NO_RESTART_HELPS

log = logging.getLogger(__name__)


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
    """Another task went away or never came (EX_TEMPFAIL), or replicas differ: a follow-up, or nobody's fault."""
    TERMINATED = 143
    """Asked to stop with nothing to save (128 + SIGTERM)."""


class TrainerError(Exception):
    """An expected end. The message is one line: what, where, the value seen, what to do next."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    restart_may_help = True
    ag_pass_through = True
    """AutoGraph, which would put lines of the user's code before the message, leaves it alone."""
    _keras_call_info_injected = True
    """Keras, which would put the arguments of a layer's call behind the message, leaves it alone."""

    @property
    def last_words(self) -> str:
        """What the termination message has to be."""
        return str(self) if self.restart_may_help else f"{NO_RESTART_HELPS}\n{self}"


class UsageError(TrainerError):
    """An argument, a variable, a model, data or a directory that cannot be used as given."""

    exit_code = ExitCode.USAGE
    restart_may_help = False

    def __init__(self, message: str, *, restart_may_help: bool | None = None) -> None:
        """Args:
        restart_may_help: whether what is missing or does not answer may be there at the next start.
        """
        super().__init__(message)
        if restart_may_help is not None:
            self.restart_may_help = restart_may_help


class Undivided(UsageError):
    """Nothing shows how replicas divide what a part of a model computes. The user may accept that, by its name."""

    def __init__(self, name: str, message: str) -> None:
        """Args:
        name: of the part, for `--unchecked`.
        """
        super().__init__(f"{message}, or accept other numbers than those of one device with --unchecked={name}")
        self.name = name


class DataChanged(UsageError):
    """The held-out examples are not those of the first reading, so that an evaluation would not be one."""

    restart_may_help = True


class WorkersDiffer(UsageError):
    """The workers have compared what has to be the same on all of them, and it is not."""

    restart_may_help = True


class Preempted(TrainerError):
    """Asked to stop, and all tasks have saved the same step."""

    exit_code = ExitCode.PREEMPTED


class PeerLost(TrainerError):
    """Another task of this job is gone, silent, or never started."""

    exit_code = ExitCode.PEER_LOST


class LeaderCannotSave(PeerLost):
    """Of tasks that save together, the leader cannot: it is the cause, and this task is not."""


class Terminated(TrainerError):
    """Asked to stop where there was nothing to save."""

    exit_code = ExitCode.TERMINATED


class NotSaved(TrainerError):
    """The state that had to be saved could not be: the volume is full, or cannot be written any more."""


class Unreadable(TrainerError):
    """What is there cannot be read: a missing right, or a volume that fails. It is not damaged, and stays."""

    def __init__(self, what: str, error: OSError) -> None:
        """Args:
        what: and where it is.
        error: of reading it.
        """
        super().__init__(f"{what}: cannot be read ({error.strerror or error}); check the volume and its rights")
        self.restart_may_help = may_pass(error)


class NotFinite(TrainerError):
    """The loss or the weights are NaN or infinite, and the training must not go on."""


class ReplicasDiffer(TrainerError):
    """Replicas that have to hold the same bits do not. No task did anything wrong: all start again, as after a loss."""

    exit_code = ExitCode.PEER_LOST

    def __init__(self, message: str, **corrupt: object) -> None:
        """Args:
        corrupt: what GET /status shows of it; see `dtj_launch.progress.Progress`.
        """
        super().__init__(message)
        self._corrupt = corrupt

    @property
    def last_words(self) -> str:
        """The line, and one of JSON for the operator, which the launcher passes on where it starts again."""
        return f"{self}\n{json.dumps({CORRUPT: self._corrupt})}"


_LASTING_ERRNOS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
_LASTING_STATUSES = frozenset({3, 7, 15})
"""INVALID_ARGUMENT, PERMISSION_DENIED and DATA_LOSS of TensorFlow's errors (absl/status/status.h)."""


def may_pass(error: BaseException) -> bool:
    """Whether an error of the operating system or of TensorFlow may be gone at the next start.

    What is missing may come, and what does not answer may answer. A missing right, a damaged file and a path that
    cannot be stay as they are.
    """
    if isinstance(error, OSError):
        return error.errno not in _LASTING_ERRNOS
    return getattr(error, "error_code", None) not in _LASTING_STATUSES


def storage_reason(error: Exception) -> str:
    """Why a file could not be written: `No space left on device`, also out of what TensorFlow says around it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).partition(" [Op:")[0].strip().splitlines()[0].rpartition("; ")[2][:200]


FOUND_TOGETHER = (NotFinite, DataChanged, WorkersDiffer, ReplicasDiffer)
"""Ends that all workers come to at the same step, from what they have exchanged."""


def accept(problem: Undivided, unchecked: Sequence[str]) -> None:
    """Says in the log, and in the job's status, that a user has accepted a problem.

    Args:
        unchecked: the names of those that are accepted.

    Raises:
        Undivided: it is none of them.
    """
    if problem.name not in unchecked:
        raise problem
    progress.show_unchecked(problem.name)
    log.warning(f"accepted by --unchecked={problem.name}: {problem.args[0].partition(', or accept ')[0]}")
