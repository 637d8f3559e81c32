"""Numbered versions of an exported model in a bucket: `<version>/...`, and `<version>.complete`, written last.

A version without a marker does not count: its upload goes on, or was cut off. `<version>.writer` claims a version, so
that two jobs that export to one URL at once get one each.
"""

import json
import logging
import socket
from pathlib import Path

from dtj_trainer.errors import NotSaved, TrainerError
from dtj_trainer.object_store.bucket import Bucket

log = logging.getLogger(__name__)

MARKER = ".complete"
CLAIM = ".writer"


def upload(bucket: Bucket, path: Path, document: dict[str, object]) -> str:
    """Writes the files of an exported model as a new version, one above the highest, and its marker last.

    Args:
        path: the directory of the model on this machine.
        document: the content of the marker, next to the version's own URL as `path`.

    Returns:
        The URL of the version.

    Raises:
        NotSaved: the bucket does not take it.
    """
    try:
        version = _claimed(bucket)
        write(bucket, path, str(version), document)
    except TrainerError as error:
        raise NotSaved(
            f"the exported model is not in {bucket.location}: {error}; a job that is started again exports it again, "
            "from its last checkpoint"
        ) from None
    return url(bucket, str(version))


def upload_all(bucket: Bucket, directory: Path) -> None:
    """Writes each folder of the directory, as `write` does, and each file.

    A folder whose name is a number is a version. Its number is a higher one in the bucket where that has it, or one
    above: who makes the folder sees a directory that is empty at each start.

    Raises:
        NotSaved: the bucket does not take it.
    """
    try:
        for path in sorted(directory.iterdir(), key=lambda path: (_number(path.name) or 0, path.name)):
            number = _number(path.name)
            if path.is_dir():
                name = path.name if number is None else str(_claimed(bucket, least=number))
                write(bucket, path, name, {})
                if name != path.name:
                    log.info(f"exported: {url(bucket, name)}, as {bucket.location} has version {number} or a later one")
            else:
                bucket.upload(path, bucket.location.below(path.name))
    except TrainerError as error:
        raise NotSaved(f"what was exported is not in {bucket.location}: {error}") from None


def write(bucket: Bucket, path: Path, name: str, document: dict[str, object]) -> None:
    """Writes the files below a directory as the folder of this name, and its marker last.

    Raises:
        TrainerError: the bucket does not take it.
    """
    marker = bucket.location.below(f"{name}{MARKER}")
    bucket.delete(marker)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    # Servers take a folder with this file for a whole model.
    files.sort(key=lambda file: file.name == "saved_model.pb")
    for file in files:
        bucket.upload(file, bucket.location.below(f"{name}/{file.relative_to(path).as_posix()}"))
    bucket.write(marker, json.dumps({**document, "path": url(bucket, name)}).encode())


def url(bucket: Bucket, name: str) -> str:
    """Of a folder of the bucket's location."""
    return f"{bucket.location.scheme}://{bucket.location.bucket}/{bucket.location.below(name)}"


def _claimed(bucket: Bucket, *, least: int = 1) -> int:
    version = max(least, 1 + max(_versions(bucket), default=0))
    owner = json.dumps({"host": socket.gethostname()}).encode()
    while not bucket.create(bucket.location.below(f"{version}{CLAIM}"), owner):
        version += 1
    return version


def _versions(bucket: Bucket) -> set[int]:
    """The versions of which there is anything: a part of one that was cut off is not continued."""
    names = (name.removesuffix("/").removesuffix(MARKER).removesuffix(CLAIM) for name in bucket.children())
    return {number for name in names if (number := _number(name)) is not None}


def _number(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdecimal() else None
