"""One run at a time in a checkpoint directory. Standard library only.

The lock is one of the kernel's (fcntl), so it ends with its process, however that ends: none is left behind, and a
process that it forks does not inherit it. Over NFS the server keeps the lock of a machine that died until its lease
ends; that is waited for.
"""

import fcntl
import json
import logging
import os
import time
from pathlib import Path

from dtj_trainer.errors import TrainerError, UsageError

log = logging.getLogger(__name__)

NAME = ".lock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")
_HERE_SECONDS = 10.0
"""How long a process of this container may take to end: the kernel knows whether it lives."""
_ELSEWHERE_SECONDS = 150.0
"""Longer than the lease of an NFS server, which is 90 s, and the grace period of a pod that was deleted by force."""
_held: dict[Path, int] = {}


def hold(
    directory: Path,
    *,
    here_seconds: float = _HERE_SECONDS,
    elsewhere_seconds: float = _ELSEWHERE_SECONDS,
) -> None:
    """Takes the lock of a directory, and keeps it until this process ends. Does nothing if this process has it.

    A directory that cannot have a lock, as it is read-only or its file system has none, is used without.

    Args:
        here_seconds: how long to wait for a process of this container, or of this machine outside of containers.
        elsewhere_seconds: how long to wait for any other process. It may be a pod that this one replaces.

    Raises:
        UsageError: another process of this container has it.
        TrainerError: a process of another container or machine has it.
    """
    path = (directory / NAME).absolute()
    if path in _held:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return
    began, waits = time.monotonic(), False
    while not _take(file):
        owner = _owner(file)
        here = owner.get("place") == _place()
        seen = f"checkpoint directory {directory}: another run uses it (process {owner.get('pid', 'unknown')}"
        if time.monotonic() - began >= (here_seconds if here else elsewhere_seconds):
            os.close(file)
            if here:
                raise UsageError(f"{seen}); wait for its end, or give another --checkpoint-dir", restart_may_help=True)
            where = f" of {owner.get('host', 'an unknown host')}"
            raise TrainerError(f"{seen}{where}); stop it, or give another --checkpoint-dir")
        if not here and not waits:
            waits = True
            log.info(f"{seen} of {owner.get('host', 'an unknown host')}); waiting {elsewhere_seconds:g} s for its end")
        time.sleep(0.1)
    _held[path] = file


def _take(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True  # no locks here
    text = json.dumps({"place": _place(), "host": os.uname().nodename, "pid": os.getpid()})
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode(), 0)
    except OSError:
        pass  # on a full volume; the lock holds without
    return True


def _owner(file: int) -> dict[str, object]:
    """The holder of the lock, if the file names one."""
    try:
        owner = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _place() -> str:
    """The same for processes that see each other; another one for each container and each machine."""
    try:
        return f"{_BOOT.read_text().strip()} {_PROCESSES.stat().st_ino}"
    except OSError:
        return os.uname().nodename
