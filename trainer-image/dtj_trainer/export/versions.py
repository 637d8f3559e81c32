"""Numbered versions of an exported model: published whole, measured, described. Standard library alone."""

import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtj_trainer.local_files import flush

_DRAFT, _LOCK = ".draft-", ".lock"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One version of an exported model: a SavedModel and what was converted from it, below one directory."""

    path: str
    """Of the version: a directory, or a URL."""
    formats: tuple[str, ...]
    size: int
    """Bytes of all files."""
    digest: str
    """`sha256:` and 64 hexadecimal digits; see `measure`."""

    def document(self) -> dict[str, Any]:
        """As result.json, GET /status and the job's status show it."""
        return {"path": self.path, "formats": list(self.formats), "size": self.size, "digest": self.digest}


@contextmanager
def new_draft(directory: Path, *, job: str) -> Iterator[Path]:
    """Where this process writes a version before it is whole; removes what killed attempts of the job have left.

    Another run of this name may be in another container or on another machine. So the kernel's lock of a file beside a
    draft says that it is in use, and no number of a process: the lock ends with its process, however that ends.
    """
    directory.mkdir(parents=True, exist_ok=True)
    of_job = re.compile(re.escape(f"{_DRAFT}{job}-") + "[0-9a-f]{32}" + re.escape(_LOCK))
    for left in directory.glob(f"{_DRAFT}*{_LOCK}"):
        if of_job.fullmatch(left.name) and (held := _lock(left)) is not None:
            _remove(left, held)
    lock = directory / f"{_DRAFT}{job}-{uuid.uuid4().hex}{_LOCK}"
    lock.touch()
    # Where files can have no lock, all drafts stay.
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
    """Removes a draft, if it is there, and then its lock."""
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)
    if file is not None:
        os.close(file)


def publish(draft: Path, directory: Path) -> Path:
    """Moves a finished draft to `directory/<version>` in one step; the version is one above the highest.

    Two jobs that export to one directory at once get a version each. Its files are on the disk by then.
    """
    for path in draft.rglob("*"):
        if path.is_file():
            flush(path)
    version = 1 + max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=0)
    while True:
        try:
            return draft.rename(directory / str(version))
        except OSError:
            # A directory that is not empty is not replaced: somebody else was faster.
            if not (directory / str(version)).exists():
                raise
            version += 1


def measure(path: Path, formats: Iterable[str]) -> Bundle:
    """Size and digest of all files below a directory.

    The digest is the SHA-256 of what `sha256sum` prints of them, in the order of their names' bytes; by hand:

        cd PATH && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
    """
    names = sorted(str(file.relative_to(path)).encode() for file in path.rglob("*") if file.is_file())
    listing, size = hashlib.sha256(), 0
    for name in names:
        file = path / name.decode()
        with file.open("rb") as content:
            listing.update(hashlib.file_digest(content, "sha256").hexdigest().encode() + b"  ./" + name + b"\n")
        size += file.stat().st_size
    return Bundle(path=str(path), formats=tuple(formats), size=size, digest=f"sha256:{listing.hexdigest()}")
