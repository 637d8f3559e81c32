"""Directories in shared places, such as /tmp, that belong to this user alone. Standard library only."""

import errno
import os
from pathlib import Path


def open_own(directory: Path) -> int:
    """A file descriptor of a directory that only this user can write to.

    Raises:
        OSError: it is a link, somebody else's, or others may write there; or it is not there.
    """
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(held)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(held)
        raise PermissionError(errno.EPERM, "others may write there")
    return held


def make_own(directory: Path) -> None:
    """Makes a directory that only this user can read and write to, unless it is there.

    Raises:
        OSError: as `open_own`, or it cannot be made.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    os.close(open_own(directory))
