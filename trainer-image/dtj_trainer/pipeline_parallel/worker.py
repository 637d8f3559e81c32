"""A worker of a pipeline: it serves its stage's part of the steps that the leader drives. Standard library only.

It holds variables that only the leader can save. So when it is asked to stop, it stays until the leader has left.
"""

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dtj_launch.progress import ProgressStore
from dtj_launch.rendezvous import probe
from dtj_trainer.config.cluster import Address, Cluster
from dtj_trainer.distribution import tf_server
from dtj_trainer.errors import Terminated, UsageError
from dtj_trainer.own_directory import open_own
from dtj_trainer.process.signals import Termination

LONGEST_STAY_SECONDS = 20.0
"""Less than the 30 s that Kubernetes gives by default."""
_LOOK_SECONDS = 0.1
_MARK = "leaves"


def leaving_mark(address: Address, *, job_uid: str) -> Path:
    """The file by which the worker with this address shows that it was asked to stop. The leader looks for it there.

    It is in a directory that only this worker uses. On a shared machine, nobody else knows its name beforehand: the
    UID of a job is random.
    """
    owner = job_uid or f"user-{os.geteuid()}"
    return Path(tempfile.gettempdir()) / f"dtj-{owner}-stage-{address.port}" / _MARK


def prepare_mark(mark: Path) -> int:
    """Makes the directory of a mark, and removes directories and marks that killed workers left.

    Returns:
        A file descriptor: while it is open, no other worker removes the directory.

    Raises:
        UsageError: the directory is somebody else's.
    """
    try:
        for left in mark.parent.parent.glob("dtj-*-stage-*"):
            with suppress(OSError):
                _remove_unused(left)
        while (held := _hold(mark.parent)) is None:
            pass
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{mark.parent}: cannot be used ({error.strerror}); set TMPDIR to a directory of your own"
        ) from None
    return held


def _hold(directory: Path) -> int | None:
    """A file descriptor of the directory, with a lock; None if another worker removed it at this moment."""
    directory.mkdir(mode=0o700, exist_ok=True)
    try:
        held = open_own(directory)
    except FileNotFoundError:
        return None
    fcntl.flock(held, fcntl.LOCK_SH)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(held), directory.lstat()):
            return held
    os.close(held)
    return None


def _remove_unused(directory: Path) -> None:
    """Raises OSError: a worker that runs holds it, or it is somebody else's."""
    held = open_own(directory)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (directory / _MARK).unlink(missing_ok=True)
        directory.rmdir()
    finally:
        os.close(held)


def serve_stage(cluster: Cluster, progress_store: ProgressStore, termination: Termination, *, job_uid: str) -> None:
    """Serves until the process is asked to stop and the leader has saved what is here; never returns.

    Raises:
        Terminated: asked to stop.
        UsageError: the directory for temporary files cannot be used.
    """
    assert cluster.own_address is not None  # a task of a checked cluster
    mark = leaving_mark(cluster.own_address, job_uid=job_uid)
    held = prepare_mark(mark)
    tf_server.start(cluster, progress_store)
    termination.saves = True
    while not termination.requested:
        time.sleep(_LOOK_SECONDS)
    try:
        mark.touch()
        left = _await_end_of(cluster.addresses[cluster.leader])
    except OSError as error:
        raise Terminated(
            f"{cluster.task}: asked to stop; cannot notify {cluster.leader} ({mark}: {error.strerror})"
        ) from None
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)
            mark.parent.rmdir()
            os.close(held)
    how = "has left" if left else f"is still there after {LONGEST_STAY_SECONDS:g} s"
    raise Terminated(f"{cluster.task}: asked to stop, and {cluster.leader} {how}")


def _await_end_of(leader: Address) -> bool:
    """Whether the leader's server ends in time; it does so with the leader."""
    until = time.monotonic() + LONGEST_STAY_SECONDS
    while probe((leader.host, leader.port), timeout=1.0) is None:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
