"""Checkpoints in a bucket: files, and a marker for each checkpoint that is written last. No TensorFlow.

What has no marker does not count. The task that writes puts its name into `writer.json` when it starts, and looks
there before each marker: of two runs with one URL the later one writes, and the earlier one ends with a line.
"""

import json
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

from dtj_trainer.checkpoint.files import PREFIX, path_of, publish, remove
from dtj_trainer.config.parsing import CheckpointPolicy
from dtj_trainer.errors import NotSaved
from dtj_trainer.object_store.bucket import Bucket

MARKER = ".complete"
WRITER = "writer.json"
_DRAFT = ".downloading"


class CheckpointMirror:
    """The checkpoints of one URL, and a local directory with a copy of some of them."""

    def __init__(self, bucket: Bucket, directory: Path) -> None:
        """Args:
        directory: of this task alone.
        """
        self._bucket = bucket
        self._directory = directory
        self._own: bytes | None = None
        self.retry_seconds = bucket.retry_seconds
        """For how long a request that fails is repeated."""

    def __str__(self) -> str:
        return str(self._bucket.location)

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, newest first.

        Raises:
            TrainerError: the bucket cannot be listed.
        """
        return sorted((step for step, _ in self._marked()), reverse=True)

    def take_over(self) -> None:
        """Makes this task the one that writes, and removes what earlier ones left without a marker."""
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex}
        self._own = json.dumps(owner).encode()
        self._bucket.write(self._key(WRITER), self._own)
        complete = set(self.steps())
        left = [entry.key for entry in self._bucket.list(f"{PREFIX}-") if _step_of(entry.key) not in complete]
        self._bucket.delete(*left)

    def fetch(self, step: int) -> bool:
        """Brings a complete checkpoint into the directory, unless it is there; returns whether it is now.

        Raises:
            TrainerError: the bucket cannot be read.
            OSError: the directory cannot be written.
        """
        text = self._bucket.read(self._key(f"{PREFIX}-{step}{MARKER}"))
        if text is None:
            return False
        sizes: dict[str, int] = json.loads(text)["files"]
        if all(_size(self._directory / name) == size for name, size in sizes.items()):
            return True
        draft = self._directory / _DRAFT
        draft.mkdir(parents=True, exist_ok=True)
        try:
            for name, size in sizes.items():
                self._bucket.download(self._key(name), size, draft / name)
        except FileNotFoundError:
            return False  # it was removed for a newer one
        publish(draft, self._directory, step)
        return True

    def fetch_note(self, name: str) -> None:
        """Brings a small file into the directory; removes what is there if there is none."""
        content = self._bucket.read(self._key(name))
        self._directory.mkdir(parents=True, exist_ok=True)
        if content is None:
            (self._directory / name).unlink(missing_ok=True)
        else:
            (self._directory / name).write_bytes(content)

    def upload_note(self, name: str) -> None:
        """Writes a small file of the directory."""
        self._bucket.write(self._key(name), (self._directory / name).read_bytes())

    def upload(self, step: int) -> None:
        """Writes the checkpoint of this step, which is in the directory, and its marker last.

        Raises:
            NotSaved: another run has taken over.
            TrainerError: the bucket does not take it.
        """
        paths = sorted(self._directory.glob(f"{path_of(self._directory, step).name}.*"))
        marker = self._key(f"{PREFIX}-{step}{MARKER}")
        self._require_own(step)
        self._bucket.delete(marker)
        for path in paths:
            self._bucket.upload(path, self._key(path.name))
        self._require_own(step)
        files = {path.name: path.stat().st_size for path in paths}
        self._bucket.write(marker, json.dumps({"step": step, "files": files}).encode())

    def remove(self, step: int) -> None:
        """Removes a checkpoint from the bucket, its marker first, and from the directory."""
        self._bucket.delete(self._key(f"{PREFIX}-{step}{MARKER}"))
        self._bucket.delete(*(e.key for e in self._bucket.list(f"{PREFIX}-{step}.") if _step_of(e.key) == step))
        remove(self._directory, step)

    def _require_own(self, step: int) -> None:
        found = self._bucket.read(self._key(WRITER))
        if found == self._own:
            return
        try:
            host = json.loads(found or b"{}").get("host", "an unknown host")
        except ValueError:
            host = "an unknown host"
        raise NotSaved(
            f"checkpoint directory {self}: step {step} is not saved: another run, on {host}, writes there since; "
            "stop one of them, or give another --checkpoint-dir"
        )

    def _marked(self) -> Iterator[tuple[int, str]]:
        for entry in self._bucket.list(f"{PREFIX}-"):
            step = _step_of(entry.key)
            if entry.key.endswith(MARKER) and step is not None:
                yield step, entry.key

    def _key(self, name: str) -> str:
        return self._bucket.location.below(name)


def _step_of(key: str) -> int | None:
    """The step in the name of an object, such as `folder/ckpt-120.index`; None if it is no part of a checkpoint."""
    number = key.rpartition("/")[2].removeprefix(f"{PREFIX}-").partition(".")[0]
    return int(number) if number.isdecimal() else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def mirror_of(policy: CheckpointPolicy) -> CheckpointMirror | None:
    """The mirror of a job's checkpoints; None if they are in a directory."""
    if policy.location is None or policy.directory is None:
        return None
    return CheckpointMirror(
        Bucket(policy.location, option="--checkpoint-dir", retry_seconds=policy.store.retry_seconds), policy.directory
    )
