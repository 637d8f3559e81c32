"""TensorBoard's logs of a bucket, in a local directory that follows them: TensorBoard opens no URL."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from dtj_trainer.config.store_url import (
    DEFAULT_RETRY_SECONDS,
    SCHEMES,
    Location,
    StorePolicy,
    default_cache,
    without_credentials,
)
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store import local_cache
from dtj_trainer.object_store.backend import Entry
from dtj_trainer.object_store.bucket import Bucket

log = logging.getLogger(__name__)

_OPTION = "--logdir"
_URLS = tuple(f"{scheme}://" for scheme in SCHEMES)
_EVERY_SECONDS = 15.0


class FolderCopy:
    """A directory with what is in a folder of a bucket."""

    def __init__(self, bucket: Bucket, directory: Path) -> None:
        self._bucket = bucket
        self._directory = directory
        self._copied: dict[str, str] = {}

    def update(self) -> None:
        """Copies what is new in the bucket.

        Raises:
            TrainerError: the bucket cannot be read.
            OSError: the directory cannot be written.
        """
        for entry in self._bucket.list(""):
            name = entry.key[len(self._bucket.location.key) :].lstrip("/")
            version = f"{entry.size} {entry.version}"
            if name and ".." not in name.split("/") and self._copied.get(name) != version:
                self._copy(entry, self._directory / name)
                self._copied[name] = version

    def _copy(self, entry: Entry, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        here = path.stat().st_size if path.is_file() else 0
        # TensorBoard holds the files of events open, and these only grow.
        start = here if "tfevents" in path.name and here <= entry.size else 0
        try:
            self._bucket.download(entry.key, entry.size, path, start=start)
        except FileNotFoundError:
            path.unlink(missing_ok=True)


def with_local_copies(arguments: Sequence[str], *, follow: Callable[[FolderCopy], None] | None = None) -> list[str]:
    """The arguments of TensorBoard with a local directory in place of each URL, which has its files by then.

    Args:
        follow: what keeps a directory up to date; a thread of this process, if it is None.

    Raises:
        TrainerError: a bucket cannot be read.
    """
    store = StorePolicy(cache=default_cache(), retry_seconds=DEFAULT_RETRY_SECONDS)
    found = []
    for argument in arguments:
        url = argument.removeprefix(f"{_OPTION}=")
        if url.startswith(_URLS):
            found.append(f"{argument.removesuffix(url)}{_begin(url, store, follow or _follow)}")
        else:
            found.append(argument)
    return found


def _begin(url: str, store: StorePolicy, follow: Callable[[FolderCopy], None]) -> Path:
    try:
        location = Location.of(url)
    except ValueError as wanted:
        raise UsageError(f"{_OPTION}={without_credentials(url)}: {wanted}") from None
    local_cache.prepare(store)
    directory = store.local_copy(location, "tensorboard")
    copy = FolderCopy(Bucket(location, option=_OPTION, retry_seconds=store.retry_seconds), directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        copy.update()
    except OSError as error:
        raise UsageError(
            f"{_OPTION}={url}: cannot be copied to {directory} ({error.strerror}); make room there, or set TMPDIR"
        ) from None
    follow(copy)
    return directory


def _follow(copy: FolderCopy) -> None:
    threading.Thread(target=_run, args=(copy,), name="logs", daemon=True).start()


def _run(copy: FolderCopy) -> None:
    ended, failed = threading.Event(), False
    while not ended.wait(_EVERY_SECONDS):
        try:
            copy.update()
            failed = False
        except (TrainerError, OSError) as error:
            if not failed:
                log.warning(f"{error}; the curves stay as they are, and are read again later")
            failed = True
