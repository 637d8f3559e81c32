"""Data files of a bucket, each read once into a local cache. No TensorFlow."""

import errno
import fnmatch
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dtj_trainer.config.store_url import Location, StorePolicy, without_credentials
from dtj_trainer.errors import UsageError, may_pass
from dtj_trainer.local_files import draft_in
from dtj_trainer.object_store.backend import Entry, files_among, folders_of
from dtj_trainer.object_store.bucket import Bucket

_WILD = frozenset("*?[")
_DOTS = frozenset({".", ".."})
_ODD = _DOTS | {""}
"""Parts of a key that no file of a folder has as its name."""
_AT_ONCE = 8


def fetch(text: str, *, option: str, store: StorePolicy, moved: Callable[[], object] = lambda: None) -> str:
    """The local path, or pattern, of the files that a URL names, which are there when this returns.

    A file is read again if its size or its version in the bucket has changed.

    Args:
        text: the URL of a folder, an object, or a pattern in its last parts.
        moved: called after each piece of an object, by several threads.

    Raises:
        UsageError: nothing is there, it may not be read, or there is no room for it, or no directory of this user.
        StoreFailed: the object store does not answer.
    """
    try:
        location = Location.of(text)
    except ValueError as wanted:
        raise UsageError(f"{option}={without_credentials(text)}: {wanted}") from None
    if _DOTS & set(location.key.split("/")):
        raise UsageError(f"{option}={text}: . and .. lead nowhere in a bucket; give the key of the folder or object")
    store.prepare_cache()
    folder, pattern = _split(location)
    bucket = Bucket(folder, option=option, retry_seconds=store.retry_seconds)
    entries = _wanted([*bucket.list("")], folder, pattern)
    if not entries and pattern is None and location.key:
        # Not a folder: one object.
        parent, _, name = location.key.rpartition("/")
        folder = Location(location.scheme, location.bucket, parent)
        bucket = Bucket(folder, option=option, retry_seconds=store.retry_seconds)
        pattern = name
        entries = [found] if (found := bucket.find(location.key)) else []
    if not entries:
        raise UsageError(
            f"{option}={text}: no files there; give a folder, an object, or a pattern such as "
            f"'{folder.scheme}://bucket/part-*.csv'",
            restart_may_help=True,
        )
    if odd := next((entry.key for entry in entries if _ODD & set(entry.key.split("/"))), None):
        raise UsageError(
            f"{option}={text}: the object {odd!a} has an empty part, . or .. in its name, which no file has; rename it"
        )
    above = folders_of(entries)
    if odd := next((entry.key for entry in entries if entry.key in above), None):
        raise UsageError(f"{option}={text}: {odd!a} is an object and a folder of others; rename one of them")
    # The same in all tasks: what they find has to agree. An object has one place, by whichever URL it was found.
    top = f"{folder.scheme}://{folder.bucket}"
    copies = store.cache / "data" / hashlib.sha256(top.encode()).hexdigest()[:16]
    root = copies / folder.key
    try:
        if missing := [entry for entry in entries if not _is_there(entry, copies)]:
            with draft_in(copies.parent, ".draft-") as drafts, ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
                drafts.mkdir()
                list(pool.map(lambda entry: _fetch(bucket, entry, copies, drafts, moved), missing))
        _remove_others(
            copies, {copies / entry.key for entry in entries}, root.relative_to(copies) / (pattern or "**/*")
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"{option}={text}: an object was removed while it was read ({error})", restart_may_help=True
        ) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            longest = max((part for entry in entries for part in entry.key.split("/")), key=lambda it: len(it.encode()))
            raise UsageError(
                f"{option}={text}: {longest[:40]!a}... has {len(longest.encode())} bytes, too many for the name of a "
                f"file in {root}; rename the object to one of 200 at most"
            ) from None
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


def _wanted(entries: Sequence[Entry], folder: Location, pattern: str | None) -> list[Entry]:
    files = files_among(entries)
    if pattern is None:
        return files
    if named := [entry for entry in files if entry.key == folder.below(pattern)]:
        return named
    start, wanted = f"{folder.key}/" if folder.key else "", pattern.split("/")
    return [entry for entry in files if _matches(entry.key.removeprefix(start).split("/"), wanted)]


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _is_there(entry: Entry, copies: Path) -> bool:
    path = copies / entry.key
    return _text(_note(copies, entry.key)) == _version(entry) and path.is_file() and path.stat().st_size == entry.size


def _fetch(bucket: Bucket, entry: Entry, copies: Path, drafts: Path, moved: Callable[[], object]) -> None:
    """Args:
    drafts: a folder of this process: others of this machine may read the same.
    """
    path, note, version = copies / entry.key, _note(copies, entry.key), _version(entry)
    for folder in (path.parent, note.parent):
        folder.mkdir(parents=True, exist_ok=True)
    draft = drafts / hashlib.sha256(entry.key.encode()).hexdigest()
    bucket.download(entry.key, entry.size, draft, moved=moved)
    # Stands for the version, so that what is remembered of a file by its time holds on each machine.
    time = int.from_bytes(hashlib.sha256(version.encode()).digest()[:7], "big")
    os.utime(draft, ns=(time, time))
    note.unlink(missing_ok=True)
    draft.replace(path)
    draft.write_text(version)
    draft.replace(note)


def _version(entry: Entry) -> str:
    """As the note of a copy has it."""
    return f"{entry.size} {entry.version}"


def _note(copies: Path, name: str) -> Path:
    """Where the version of a copy is noted: beside all copies, among which each file is data."""
    return copies.with_name(f"{copies.name}.versions") / name


def _remove_others(copies: Path, kept: set[Path], pattern: Path) -> None:
    """Removes what is no longer in the bucket: all files that match the pattern are read, or the one of its name."""
    if copies / pattern in kept:
        return
    for path in [path for path in (*copies.glob(str(pattern)), copies / pattern) if path.is_file()]:
        if path not in kept:
            path.unlink(missing_ok=True)
            _note(copies, str(path.relative_to(copies))).unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
