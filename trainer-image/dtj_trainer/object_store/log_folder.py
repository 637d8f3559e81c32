"""TensorBoard's logs in a bucket: a task copies its own there, and TensorBoard, which opens no URL, a copy from there.

No TensorFlow.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dtj_trainer.config.store_url import (
    DEFAULT_RETRY_SECONDS,
    SCHEMES,
    Location,
    StorePolicy,
    default_cache,
    without_credentials,
)
from dtj_trainer.errors import TrainerError, UsageError, may_pass
from dtj_trainer.object_store.backend import Entry, files_among
from dtj_trainer.object_store.bucket import Bucket

log = logging.getLogger(__name__)

_OPTION = "--logdir"
_URLS = tuple(f"{scheme}://" for scheme in SCHEMES)
_EVERY_SECONDS = 15.0


class Repeated:
    """Copies every 15 seconds, on a thread of its own. What fails is reported once, and tried again the next time."""

    def __init__(self, copy: Callable[[], None], remains: str) -> None:
        """Args:
        copy: may raise a TrainerError or an OSError.
        remains: what becomes of the logs where it fails.
        """
        self._copy = copy
        self._remains = remains
        self._ended = threading.Event()
        self._failed = False
        self._turn = threading.Lock()
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def end(self) -> None:
        """Copies what is left, and stops.

        Raises:
            TrainerError, OSError: it cannot be copied.
        """
        self._ended.set()
        with self._turn:
            self._copy()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._try()

    def _try(self) -> None:
        try:
            with self._turn:
                self._copy()
            self._failed = False
        except (TrainerError, OSError) as error:
            if not self._failed:
                log.warning(f"{error}; {self._remains}")
            self._failed = True


def copied_to(bucket: Bucket, directory: Path) -> Repeated:
    """Copies from now on what has changed in a directory."""
    copied: dict[Path, tuple[int, int]] = {}

    def copy() -> None:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            if path.name.startswith("."):
                continue
            with suppress(FileNotFoundError):  # one that is removed meanwhile
                found = path.stat()
                version = found.st_size, found.st_mtime_ns
                if copied.get(path) != version:
                    bucket.upload(path, bucket.location.below(path.relative_to(directory).as_posix()))
                    copied[path] = version

    return Repeated(copy, f"logs stay in {directory} and are copied later")


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
        for entry in files_among([*self._bucket.list("")]):
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
            self._bucket.download(entry.key, entry.size, path, start=start, may_change=True)
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
    store.prepare_cache()
    directory = store.local_copy(location, "tensorboard")
    copy = FolderCopy(Bucket(location, option=_OPTION, retry_seconds=store.retry_seconds), directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        copy.update()
    except OSError as error:
        raise UsageError(
            f"{_OPTION}={url}: cannot be copied to {directory} ({error.strerror}); make room there, or set TMPDIR",
            restart_may_help=may_pass(error),
        ) from None
    follow(copy)
    return directory


def _follow(copy: FolderCopy) -> None:
    Repeated(copy.update, "the curves stay as they are, and are read again later")
