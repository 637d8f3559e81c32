"""Local copies of what is in buckets: where they lie, and the data files, which each task reads once. No TensorFlow."""

import fnmatch
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dtj_trainer.config.store_url import Location, StorePolicy, default_cache, without_credentials
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store.bucket import Bucket, Entry
from dtj_trainer.own_directory import make_own

_WILD = frozenset("*?[")
_AT_ONCE = 8


def prepare(store: StorePolicy) -> None:
    """Makes the directory for local copies if no option names one; call it before anything is copied.

    It is in a place that all users of a machine share, under a name that they know: who makes it first could exchange
    checkpoints and data.

    Raises:
        UsageError: it is not this user's alone.
    """
    if store.cache != default_cache():
        return
    try:
        make_own(store.cache)
    except OSError as error:
        raise UsageError(
            f"{store.cache}: cannot be used for local copies of object stores ({error.strerror}); give a directory of "
            "your own with --store-cache, or set TMPDIR"
        ) from None


def location_of(text: str, *, option: str) -> Location:
    """The location that the URL of an option names.

    Raises:
        UsageError: there is no such place.
    """
    try:
        return Location.of(text)
    except ValueError as wanted:
        raise UsageError(f"{option}={without_credentials(text)}: {wanted}") from None


def fetch_data(text: str, *, option: str, store: StorePolicy) -> str:
    """The local path, or pattern, of the files that a URL names, which are there when this returns.

    Files that have changed in the bucket since they were read are read again, with those next to them.

    Args:
        text: the URL of a folder, an object, or a pattern in its last parts.

    Raises:
        UsageError: nothing is there, it may not be read, or there is no room for it, or no directory of this user.
        StoreFailed: the object store does not answer.
    """
    location = location_of(text, option=option)
    prepare(store)
    for folder, pattern in _readings(location):
        bucket = Bucket(folder, option=option, retry_seconds=store.retry_seconds)
        found = {name: entry for entry in bucket.list("") if (name := _name(entry, folder, pattern))}
        if found:
            break
    else:
        raise UsageError(
            f"{option}={text}: no files there; give a folder, an object, or a pattern such as "
            f"'{location.scheme}://bucket/part-*.csv'"
        )
    # The same in all tasks, since what they find has to agree; another one for other content.
    identity = repr((str(folder), sorted((name, entry.size, entry.version) for name, entry in found.items())))
    root = store.cache / "data" / hashlib.sha256(identity.encode()).hexdigest()[:16]
    try:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(lambda name: _fetch(bucket, found[name], root / name), found))
    except FileNotFoundError as error:
        raise UsageError(f"{option}={text}: an object was removed while it was read ({error})") from None
    except OSError as error:
        raise UsageError(
            f"{option}={text}: cannot be kept in {root} ({error.strerror}); give a directory of a local disk with "
            "room for the files with --store-cache"
        ) from None
    return str(root / pattern) if pattern else str(root)


def _readings(location: Location) -> Iterator[tuple[Location, str | None]]:
    """A folder, and the pattern below it: all that the location may mean."""
    parts = location.key.split("/")
    depth = next((index for index, part in enumerate(parts) if _WILD & set(part)), None)
    if depth is None:
        yield location, None
        # Or it is one object.
        depth = len(parts) - 1
    if location.key:
        yield Location(location.scheme, location.bucket, "/".join(parts[:depth])), "/".join(parts[depth:])


def _name(entry: Entry, folder: Location, pattern: str | None) -> str | None:
    """The name of an object within the folder; None if it is not wanted."""
    name = entry.key[len(folder.key) :].lstrip("/")
    given, wanted = name.split("/"), pattern.split("/") if pattern else None
    if not name or name.endswith("/") or ".." in given:
        return None
    if wanted and not (len(wanted) == len(given) and all(map(fnmatch.fnmatchcase, given, wanted))):
        return None
    return name


def _fetch(bucket: Bucket, entry: Entry, path: Path) -> None:
    """Brings an object to a place of its version's own, unless it is there."""
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of this process: others of this machine may read the same.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        bucket.download(entry.key, entry.size, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
