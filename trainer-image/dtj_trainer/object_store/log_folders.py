"""TensorBoard's logs in a bucket: a folder that is copied there while it is written, and back while it is shown."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from dtj_trainer.config.store_url import DEFAULT_RETRY_SECONDS, SCHEMES, StorePolicy, default_cache
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store import local_copies
from dtj_trainer.object_store.bucket import Bucket, Entry

log = logging.getLogger(__name__)

_EVERY_SECONDS = 15.0
_OPTION = "--logdir"
_URLS = tuple(f"{scheme}://" for scheme in SCHEMES)


class LogFolder:
    """A directory of this machine and a folder of a bucket, of which one follows the other."""

    after_failure: str
    """What becomes of the files where a copy fails, for the log."""

    def __init__(self, bucket: Bucket, directory: Path) -> None:
        self._bucket = bucket
        self._directory = directory
        self._versions: dict[str, object] = {}
        """Of what is copied already, by its name."""
        self._ended = threading.Event()
        self._failed = False
        self._turn = threading.Lock()

    def update(self) -> None:
        """Copies what has changed.

        Raises:
            TrainerError: the bucket cannot be used.
            OSError: the directory cannot be used.
        """
        raise NotImplementedError

    def follow(self) -> None:
        """Copies again and again, on a thread of its own."""
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def end(self) -> None:
        """Copies what is left, and stops."""
        self._ended.set()
        self.try_update()

    def try_update(self) -> None:
        """Copies what has changed. What fails is reported once, and tried again the next time."""
        try:
            with self._turn:
                self.update()
            self._failed = False
        except (TrainerError, OSError) as error:
            if not self._failed:
                log.warning(f"{error}; {self.after_failure}")
            self._failed = True

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.try_update()


class UploadedLogs(LogFolder):
    """The bucket follows the directory."""

    after_failure = "the logs stay on this machine and are copied later"

    def update(self) -> None:
        """See `LogFolder`."""
        for path in sorted(path for path in self._directory.rglob("*") if path.is_file()):
            name, found = path.relative_to(self._directory).as_posix(), path.stat()
            version = found.st_size, found.st_mtime_ns
            if not path.name.startswith(".") and self._versions.get(name) != version:
                self._bucket.upload(path, self._bucket.location.below(name))
                self._versions[name] = version


class DownloadedLogs(LogFolder):
    """The directory follows the bucket."""

    after_failure = "the curves stay as they are, and are read again later"

    def update(self) -> None:
        """See `LogFolder`."""
        for entry in self._bucket.list(""):
            name = entry.key[len(self._bucket.location.key) :].lstrip("/")
            version = entry.size, entry.version
            if name and ".." not in name.split("/") and self._versions.get(name) != version:
                self._copy(entry, self._directory / name)
                self._versions[name] = version

    def _copy(self, entry: Entry, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        here = path.stat().st_size if path.is_file() else 0
        # TensorBoard holds the files of events open, and these only grow.
        start = here if "tfevents" in path.name and here <= entry.size else 0
        try:
            self._bucket.download(entry.key, entry.size, path, start=start)
        except FileNotFoundError:
            path.unlink(missing_ok=True)


def with_local_folders(arguments: Sequence[str]) -> list[str]:
    """The arguments of TensorBoard, which opens no URL, with a local directory that follows in place of each.

    Raises:
        TrainerError: a bucket cannot be read.
    """
    found = []
    for argument in arguments:
        url = argument.removeprefix(f"{_OPTION}=")
        if url.startswith(_URLS):
            argument = f"{argument.removesuffix(url)}{_followed(url)}"
        found.append(argument)
    return found


def _followed(url: str) -> Path:
    location = local_copies.location_of(url, option=_OPTION)
    store = StorePolicy(cache=default_cache(), retry_seconds=DEFAULT_RETRY_SECONDS)
    local_copies.prepare(store)
    directory = store.local_copy(location, "tensorboard")
    logs = DownloadedLogs(Bucket(location, option=_OPTION, retry_seconds=store.retry_seconds), directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        logs.update()
    except OSError as error:
        raise UsageError(
            f"{_OPTION}={url}: cannot be copied to {directory} ({error.strerror}); make room there, or set TMPDIR"
        ) from None
    logs.follow()
    return directory
