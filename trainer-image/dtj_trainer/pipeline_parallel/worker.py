"""A worker of a pipeline: it serves its stage's part of the steps that the leader drives. Standard library only.

It holds variables that only the leader can save. So when it is asked to stop, it stays until the leader has left.
"""

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
from dtj_trainer.local_files import make_own
from dtj_trainer.process.sigterm import Termination

LONGEST_STAY_SECONDS = 20.0
"""Less than the 30 s that Kubernetes gives by default."""
_LOOK_SECONDS = 0.1


def leaving_mark(address: Address, *, job_uid: str) -> Path:
    """The file by which the worker with this address shows that it was asked to stop. The leader looks for it there.

    It is in a directory that only this job uses, or outside of jobs only this user.
    """
    owner = job_uid or f"user-{os.geteuid()}"
    return Path(tempfile.gettempdir()) / f"dtj-{owner}" / f"stage-{address.port}"


def prepare_mark(mark: Path) -> None:
    """Makes the directory of a mark, and removes a mark that a killed worker left.

    Raises:
        UsageError: the directory is somebody else's.
    """
    try:
        make_own(mark.parent)
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{mark.parent}: cannot be used ({error.strerror}); set TMPDIR to a directory of your own"
        ) from None


def serve_stage(cluster: Cluster, progress_store: ProgressStore, termination: Termination, *, job_uid: str) -> None:
    """Serves until the process is asked to stop and the leader has saved what is here; never returns.

    Raises:
        Terminated: asked to stop.
        UsageError: the directory for temporary files cannot be used.
    """
    assert cluster.own_address is not None  # a task of a checked cluster
    mark = leaving_mark(cluster.own_address, job_uid=job_uid)
    prepare_mark(mark)
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
