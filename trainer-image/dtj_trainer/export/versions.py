"""Numbered versions of an exported model: published whole, measured, described. Standard library alone."""

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtj_trainer.local_files import draft_in, flush

_DRAFT = ".draft-"


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


def new_draft(directory: Path, *, job: str) -> AbstractContextManager[Path]:
    """Where this process writes a version before it is whole; removes what killed attempts of the job have left."""
    return draft_in(directory, f"{_DRAFT}{job}-")


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
