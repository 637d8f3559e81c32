"""A worker of a pipeline: it serves its stage's part of the steps that the leader drives. Standard library only.

It holds variables that only the leader can save. So when it is asked to stop, it tells the leader, which may not have
been asked, and stays until that has left.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.cluster import Address, Cluster
from dtj_trainer.distribution import tf_server
from dtj_trainer.errors import Terminated, UsageError, may_pass
from dtj_trainer.local_files import make_own
from dtj_trainer.process.sigterm import Termination


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
            f"{mark.parent}: cannot be used ({error.strerror}); set TMPDIR to a directory of your own",
            restart_may_help=may_pass(error),
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
    tf_server.wait_for_request(termination)
    try:
        mark.touch()
        end = tf_server.outlast_leader(cluster)
    except OSError as error:
        raise Terminated(
            f"{cluster.task}: asked to stop; cannot notify {cluster.leader} ({mark}: {error.strerror})"
        ) from None
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)
    raise end
