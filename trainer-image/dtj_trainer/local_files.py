"""Files that are written whole, and directories that belong to this user alone. Standard library only."""

import errno
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path


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
