"""Data files of a bucket, each read once into a local cache. No TensorFlow."""

import fnmatch
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dtj_trainer.config.store_url import Location, StorePolicy, without_credentials
from dtj_trainer.errors import UsageError, may_pass
from dtj_trainer.object_store.backend import Entry
from dtj_trainer.object_store.bucket import Bucket

_WILD = frozenset("*?[")
_AT_ONCE = 8


def fetch(text: str, *, option: str, store: StorePolicy) -> str:
    """The local path, or pattern, of the files that a URL names, which are there when this returns.

    A file is read again if its size or its version in the bucket has changed.

    Args:
        text: the URL of a folder, an object, or a pattern in its last parts.

    Raises:
        UsageError: nothing is there, it may not be read, or there is no room for it, or no directory of this user.
        StoreFailed: the object store does not answer.
    """
    try:
        location = Location.of(text)
    except ValueError as wanted:
        raise UsageError(f"{option}={without_credentials(text)}: {wanted}") from None
    store.prepare_cache()
    folder, pattern = _split(location)
    bucket = Bucket(folder, option=option, retry_seconds=store.retry_seconds)
    entries = [entry for entry in bucket.list("") if _is_wanted(entry, folder, pattern)]
    if not entries and pattern is None and location.key:
        # Not a folder: one object.
        parent, _, name = location.key.rpartition("/")
        folder = Location(location.scheme, location.bucket, parent)
        bucket = Bucket(folder, option=option, retry_seconds=store.retry_seconds)
        pattern = name
        entries = [entry for entry in bucket.list(name) if entry.key == location.key]
    if not entries:
        raise UsageError(
            f"{option}={text}: no files there; give a folder, an object, or a pattern such as "
            f"'{folder.scheme}://bucket/part-*.csv'",
            restart_may_help=True,
        )
    # The same in all tasks: what they find has to agree.
    root = store.cache / "data" / hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    try:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            kept = set(pool.map(lambda entry: _fetch(bucket, entry, root), entries))
        _remove_others(root, kept, pattern or "**/*")
    except FileNotFoundError as error:
        raise UsageError(
            f"{option}={text}: an object was removed while it was read ({error})", restart_may_help=True
        ) from None
    except OSError as error:
        raise UsageError(
            f"{option}={text}: cannot be kept in {root} ({error.strerror}); give a directory of a local disk with "
            "room for the files with --store-cache",
            restart_may_help=may_pass(error),
        ) from None
    return str(root / pattern) if pattern else str(root)


def _split(location: Location) -> tuple[Location, str | None]:
    """The folder without wildcards, and the pattern below it."""
    parts = location.key.split("/")
    wild = next((index for index, part in enumerate(parts) if _WILD & set(part)), None)
    if wild is None:
        return location, None
    return Location(location.scheme, location.bucket, "/".join(parts[:wild])), "/".join(parts[wild:])


def _is_wanted(entry: Entry, folder: Location, pattern: str | None) -> bool:
    name = entry.key[len(folder.key) :].lstrip("/")
    if not name or name.endswith("/") or ".." in name.split("/"):
        return False
    if pattern is None:
        return True
    wanted, given = pattern.split("/"), name.split("/")
    return len(wanted) == len(given) and all(map(fnmatch.fnmatchcase, given, wanted))


def _fetch(bucket: Bucket, entry: Entry, root: Path) -> Path:
    path = root / entry.key[len(bucket.location.key) :].lstrip("/")
    note = path.with_name(f".{path.name}.version")
    version = f"{entry.size} {entry.version}"
    if _text(note) == version and path.is_file() and path.stat().st_size == entry.size:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of this process: others of this machine may read the same.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        bucket.download(entry.key, entry.size, draft)
        note.unlink(missing_ok=True)
        draft.replace(path)
        draft.write_text(version)
        draft.replace(note)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _remove_others(root: Path, kept: set[Path], pattern: str) -> None:
    """Removes what is no longer in the bucket: all files that match the pattern are read."""
    for path in [path for path in root.glob(pattern) if path.is_file() and not path.name.startswith(".")]:
        if path not in kept:
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.version").unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
