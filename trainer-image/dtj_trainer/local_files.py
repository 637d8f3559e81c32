"""Files that are written whole, and directories that belong to this user or process alone. Standard library only."""

import errno
import fcntl
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_LOCK = ".lock"


def make_own(directory: Path) -> None:
    """Makes a directory in a shared place, such as /tmp, that only this user can read and write to.

    Does nothing if there is one.

    Raises:
        OSError: it is a link, somebody else's, or others may write there; or it cannot be made.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others may write there")


def as_json(value: object) -> object:
    """The value with None for each number that is not finite: JSON has none, though Python writes them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list | tuple) else value


def flush(path: Path) -> None:
    """Has a file on the disk, so that a machine that loses its power does not lose what the file's name stands for."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush_open(descriptor)
    finally:
        os.close(descriptor)


def flush_open(descriptor: int) -> None:
    """As `flush`, of a file that is open."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call; theirs is then the write itself.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise


def write_atomically(path: Path, text: str) -> Path:
    """Replaces the file in one step, so that a reader sees the old text or the new, also after a loss of power."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        flush(draft)
        return draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_in(directory: Path, start: str) -> Iterator[Path]:
    """The path of a folder for this process alone, which it makes and moves; what is there at the end is removed.

    So is what killed processes have left under names with this start. Another process may be in another container or on
    another machine, where its number says nothing: the kernel's lock of a file beside its folder says that it lives, as
    a lock ends with its process.
    """
    directory.mkdir(parents=True, exist_ok=True)
    alike = re.compile(f"{re.escape(start)}[0-9a-f]{{32}}{re.escape(_LOCK)}")
    for left in directory.iterdir():
        if alike.fullmatch(left.name) and (held := _lock(left)) is not None:
            _remove(left, held)
    lock = directory / f"{start}{uuid.uuid4().hex}{_LOCK}"
    lock.touch()
    # Where files can have no lock, those of all processes stay.
    file = _lock(lock)
    try:
        yield lock.with_suffix("")
    finally:
        _remove(lock, file)


def _lock(path: Path) -> int | None:
    """The file with its lock, which it keeps while it is open; None if another process has it, or there is none."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _remove(lock: Path, file: int | None) -> None:
    """Removes the folder of a lock, if it is there, and then the lock."""
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)
    if file is not None:
        os.close(file)
