"""Checkpoints in a bucket: files, and a marker for each checkpoint that is written last. No TensorFlow.

What has no marker does not count. An object with a name that is not written here is a user's, and stays. The task that
writes puts its name into `writer.json` when it starts, and looks there before each marker: of two runs with one URL
the later one writes, and the earlier one ends with a line. Where there is none, the task writes it again, unless it
has seen that of another run.
"""

import hashlib
import json
import logging
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dtj_trainer.checkpoint.files import INDEX, PREFIX, files_of, publish, remove, step_of
from dtj_trainer.config.outputs import CheckpointPolicy
from dtj_trainer.errors import NotSaved, UsageError, storage_reason
from dtj_trainer.object_store.bucket import Bucket

log = logging.getLogger(__name__)

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
        self._other: bytes | None = None
        """What another run wrote that has taken over."""
        self._warned_of: set[int] = set()
        self.retry_seconds = bucket.retry_seconds
        """For how long a request that fails is repeated."""

    def __str__(self) -> str:
        return str(self._bucket.location)

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, newest first.

        Raises:
            TrainerError: the bucket cannot be listed.
        """
        return sorted((step for step, name in self._own_names() if name.endswith(MARKER)), reverse=True)

    def take_over(self) -> None:
        """Makes this task the one that writes, and removes what earlier ones left without a marker.

        Raises:
            UsageError: there are checkpoints, and nothing says that a run of this trainer wrote any of them.
            TrainerError: the bucket cannot be used.
        """
        if self._bucket.read(self._key(WRITER)) is None:
            self._require_no_others()
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex}
        self._own = json.dumps(owner).encode()
        self._other = None
        self._bucket.write(self._key(WRITER), self._own)
        complete = set(self.steps())
        self._bucket.delete(*(self._key(name) for step, name in self._own_names() if step not in complete))

    def fetch(self, step: int) -> bool:
        """Brings a complete checkpoint into the directory, unless it is there; returns whether it is now.

        A local copy counts if it has the digests that the marker names: checkpoints of one model have one size.

        Raises:
            TrainerError: the bucket cannot be read, or the directory cannot be written.
        """
        marker = self._key(f"{PREFIX}-{step}{MARKER}")
        text = self._bucket.read(marker)
        if text is None:
            return False
        try:
            files = _files_of(text, step)
        except ValueError as error:
            return self._refuse(step, f"its marker cannot be used ({error}); remove {marker}")
        if all(_is_whole(self._directory / file.name, file) for file in files):
            return True
        remove(self._directory, step)
        draft = self._directory / _DRAFT
        try:
            draft.mkdir(parents=True, exist_ok=True)
            for file in files:
                self._bucket.download(self._key(file.name), file.size, draft / file.name, may_change=True)
            if not all(_is_whole(draft / file.name, file) for file in files):
                return self._refuse(step, "its files are not those that its marker names; another run may write there")
            publish(draft, self._directory, step)
        except FileNotFoundError:
            return False  # it was removed for a newer one
        except OSError as error:
            raise NotSaved(
                f"checkpoint of step {step}: cannot be copied from {self} to {self._directory} "
                f"({storage_reason(error)}); make room there, or give another directory with --store-cache"
            ) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return True

    def _refuse(self, step: int, reason: str) -> bool:
        """Says so, once: the evaluator looks again and again."""
        if step not in self._warned_of:
            self._warned_of.add(step)
            log.warning(f"checkpoint {self}/{PREFIX}-{step}: {reason}")
        return False

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
        paths = files_of(self._directory, step)
        marker = self._key(f"{PREFIX}-{step}{MARKER}")
        self._require_own(step)
        self._bucket.delete(marker)
        for path in paths:
            self._bucket.upload(path, self._key(path.name))
        self._require_own(step)
        document = {
            "step": step,
            "files": {path.name: path.stat().st_size for path in paths},
            "digests": {path.name: _digest(path) for path in paths},
        }
        self._bucket.write(marker, json.dumps(document).encode())

    def remove(self, step: int) -> None:
        """Removes a checkpoint from the bucket, its marker first."""
        self._bucket.delete(self._key(f"{PREFIX}-{step}{MARKER}"))
        self._bucket.delete(*(self._key(name) for of, name in self._own_names(f"{PREFIX}-{step}.") if of == step))

    def _require_own(self, step: int) -> None:
        key = self._key(WRITER)
        found = self._bucket.read(key)
        if found is None and self._own is not None and self._other is None:
            # A lifecycle rule of the bucket, or a person, has removed it.
            self._bucket.create(key, self._own)
            found = self._bucket.read(key)
        if found == self._own:
            return
        self._other = found or self._other
        try:
            host = json.loads(self._other or b"{}").get("host", "an unknown host")
        except ValueError:
            host = "an unknown host"
        raise NotSaved(
            f"checkpoint directory {self}: step {step} is not saved: another run, on {host}, writes there since; "
            "stop one of them, or give another --checkpoint-dir"
        )

    def _require_no_others(self) -> None:
        """TensorFlow's CheckpointManager names its files as this trainer does."""
        names = {name: step for step, name in self._own_names()}
        if names and not any(name.endswith(MARKER) for name in names):
            path = f"{PREFIX}-{min(names.values())}"
            raise UsageError(
                f"checkpoint {self}/{path} is not of this trainer, as there is neither {WRITER} nor {path}{MARKER}; "
                "remove it, or give an empty --checkpoint-dir"
            )

    def _own_names(self, start: str = f"{PREFIX}-") -> Iterator[tuple[int, str]]:
        """The parts and markers of checkpoints whose names begin so: step and name."""
        for name in self._bucket.children(start):
            marked = name.removesuffix(MARKER) + INDEX if name.endswith(MARKER) else name
            if (step := step_of(marked)) is not None:
                yield step, name

    def _key(self, name: str) -> str:
        return self._bucket.location.below(name)


@dataclass(frozen=True)
class _File:
    """A file of a checkpoint, as its marker names it."""

    name: str
    size: int
    digest: str
    """SHA-256."""


def _files_of(marker: bytes, step: int) -> list[_File]:
    """The files that a marker names.

    Whoever may write to the bucket may write a marker: it names files of this checkpoint, and no others of this
    machine.

    Raises:
        ValueError: it is not such a marker.
    """
    try:
        document = json.loads(marker)
        sizes, digests = document["files"], document["digests"]
        files = [_File(str(name), int(size), str(digests[name])) for name, size in sizes.items()]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("it is no list of files") from None
    if not files:
        raise ValueError("it names no files")
    for file in files:
        if step_of(file.name) != step or file.size < 0:
            raise ValueError(f"it names {file.name!r:.100}, which is no file of this checkpoint")
    return files


def _is_whole(path: Path, file: _File) -> bool:
    try:
        return path.stat().st_size == file.size and _digest(path) == file.digest
    except OSError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mirror_of(policy: CheckpointPolicy) -> CheckpointMirror | None:
    """The mirror of a job's checkpoints; None if they are in a directory."""
    if policy.location is None or policy.directory is None:
        return None
    return CheckpointMirror(
        Bucket(policy.location, option="--checkpoint-dir", retry_seconds=policy.store.retry_seconds), policy.directory
    )
