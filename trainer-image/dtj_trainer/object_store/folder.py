"""A local directory whose files are copied to a bucket: TensorBoard's logs. No TensorFlow."""

import logging
import threading
from pathlib import Path

from dtj_trainer.errors import TrainerError
from dtj_trainer.object_store.bucket import Bucket

log = logging.getLogger(__name__)

_EVERY_SECONDS = 15.0


class FolderSync:
    """Copies what has changed in a directory, again and again, on a thread of its own."""

    def __init__(self, bucket: Bucket, directory: Path) -> None:
        self._bucket = bucket
        self._directory = directory
        self._copied: dict[Path, tuple[int, int]] = {}
        self._ended = threading.Event()
        self._failed = False
        self._turn = threading.Lock()
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.copy()

    def copy(self) -> None:
        """Copies what has changed. What fails is reported once, and tried again the next time."""
        try:
            with self._turn:
                self._copy()
            self._failed = False
        except (TrainerError, OSError) as error:
            if not self._failed:
                log.warning(f"{error}; logs stay in {self._directory} and are copied later")
            self._failed = True

    def end(self) -> None:
        """Copies what is left, and stops."""
        self._ended.set()
        self.copy()

    def _copy(self) -> None:
        for path in sorted(path for path in self._directory.rglob("*") if path.is_file()):
            if path.name.startswith("."):
                continue
            found = path.stat()
            version = found.st_size, found.st_mtime_ns
            if self._copied.get(path) != version:
                self._bucket.upload(path, self._bucket.location.below(path.relative_to(self._directory).as_posix()))
                self._copied[path] = version
