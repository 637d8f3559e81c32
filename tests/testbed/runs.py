"""The directories of runs: certificates, data, logs and process files of one control plane each.

They lie under the temporary directory, private to the user. A run belongs to a process, its owner; whoever makes a new
run first clears away those whose owner is gone, so a crash leaves nothing for longer than until the next run.
"""

import os
import shutil
import stat
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from testbed import cgroups, processes
from testbed.cache import cache_root, locked
from testbed.network import Network
from testbed.processes import Process

NOBODY = "0 0"


def root() -> Path:
    """The folder of this user's runs, which need not exist."""
    return Path(tempfile.gettempdir()) / f"dtj-testbed-{os.getuid()}"


def create(name: str, *, owner: int) -> Path:
    """Make the directory of a run, after clearing away what crashed runs left. `owner` 0: it outlives everyone.

    Raises PermissionError where another user has taken the folder's name.
    """
    with _lock():
        root().mkdir(mode=0o700, exist_ok=True)
        status = root().lstat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700 or root().is_symlink():
            raise PermissionError(f"{root()} must be a directory that only you can enter: remove it")
        for run in root().iterdir():
            if _abandoned(run):
                _remove(run)
        run = root() / name
        run.mkdir(mode=0o700)
        (run / "owner").write_text(processes.identify(owner) if owner else NOBODY)
    return run


def launching() -> AbstractContextManager[None]:
    """Held while a control plane that others may share is looked for and started: one is started, not two."""
    return locked(cache_root() / "launch.lock")


def owner_of(run: Path) -> int:
    """The pid of the process that a run belongs to; 0 for a run that outlives everyone."""
    return int((run / "owner").read_text().split()[0])


def remove(run: Path) -> None:
    """End all processes of a run and delete its directory, if it exists."""
    with _lock():
        if run.exists():
            _remove(run)
        if root().exists() and not any(root().iterdir()):
            root().rmdir()


def _lock() -> AbstractContextManager[None]:
    return locked(cache_root() / "runs.lock")


def _remove(run: Path) -> None:
    for file in sorted((run / "processes").glob("*")):
        Process(file.name, run=run).kill()
    cgroups.remove(run)
    if network := Network.of(run):
        network.remove()
    shutil.rmtree(run)


def _abandoned(run: Path) -> bool:
    file = run / "owner"
    # Without it, whoever made the directory died before the next line.
    identity = file.read_text() if file.exists() else ""
    return not identity or (identity != NOBODY and processes.find(identity) is None)
