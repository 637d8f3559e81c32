"""Directories in shared places, such as /tmp, that belong to this user alone. Standard library only."""

import errno
import os
import stat
from pathlib import Path


def make_own(directory: Path) -> None:
    """Makes a directory that only this user can read and write to, unless it is there.

    Raises:
        OSError: it is a link, somebody else's, or others may write there; or it cannot be made.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others may write there")
