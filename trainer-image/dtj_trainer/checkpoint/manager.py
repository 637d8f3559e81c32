"""Saves and restores checkpoints while a training goes on.

TensorFlow's own CheckpointManager is not used. Its asynchronous mode fails with Keras 3 (the second save makes
variables inside a function), it reads a damaged `checkpoint` file as an end of everything, and two processes that
save the same step take each other's draft away. Here the values are read between two steps, which is cheap, and
written by a thread of their own into a draft that carries the process's name; its files get their own names one by
one, the index last. Imports TensorFlow.
"""

import logging
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.checkpoint import directory_lock
from dtj_trainer.checkpoint import files as checkpoints
from dtj_trainer.checkpoint.background_writer import BackgroundWriter
from dtj_trainer.checkpoint.mirror import CheckpointMirror, mirror_of
from dtj_trainer.checkpoint.state import Damaged, State
from dtj_trainer.config.outputs import CheckpointPolicy
from dtj_trainer.errors import NotSaved, TrainerError, Unreadable, UsageError, storage_reason
from dtj_trainer.object_store.bucket import StoreFailed

log = logging.getLogger(__name__)

VALIDATION_RECORD = "validation.json"
"""What is remembered of validations, next to the checkpoints."""
DRAFT = ".saving-"
"""What the names of folders with checkpoints that are being written begin with."""
RECEIVED = f"{DRAFT}received"
"""That of a checkpoint that comes from another task."""
_DRAFTS = re.compile(rf"{re.escape(DRAFT)}(.+-[0-9]+|received)")
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Medium:
    """What checkpoints are kept in."""

    remedy: str
    """What to do where one does not fit."""
    is_memory: bool = False
    """It has room for two of this task's own, which are written often, and which nobody reads but this trainer."""


DISK = Medium(remedy="make room there, or mount a volume that can be written")
MEMORY = Medium(is_memory=True, remedy="raise checkpoint.inMemory.sizeLimit, which has to hold two copies")


class Store:
    """Saves and restores one state in one directory."""

    def __init__(
        self,
        state: State,
        directory: Path | None,
        *,
        keep: int,
        writes: bool,
        io_device: str | None = None,
        mirror: CheckpointMirror | None = None,
        memory: "Store | None" = None,
        medium: Medium = DISK,
    ) -> None:
        """Args:
        directory: None where the job keeps no checkpoints.
        keep: how many stay.
        writes: whether this task's checkpoints are the job's. All tasks of a collective have to call `save`, since
            reading the values may need all of them; one of them writes.
        mirror: what is in the bucket, if the directory is a local copy.
        io_device: the device that reads and writes; this process's first CPU where None.
        memory: this task's own copies in memory.
        medium: of the directory.
        """
        self._state = state
        self._directory = directory
        self._keep = keep
        self._mirror = mirror
        self.memory = memory
        """This task's own copies in memory; None if it keeps none."""
        self._medium = medium
        self._begun = False
        self._writes = writes
        self._device = io_device or "/device:CPU:0"
        # A copy in memory is due so often that one line has to do for all of those that fail in a row.
        self._writer = BackgroundWriter(directory, warns_once=medium.is_memory)
        self._draft = f"{DRAFT}{socket.gethostname()}-{os.getpid()}"
        self._damaged: set[int] = set()
        self.last_step: int | None = None
        """Step of the newest checkpoint that this run wrote in full, or restored."""
        self.pinned: int | None = None
        """A step whose checkpoint stays, however many come after it."""
        self.writing_seconds = 0.0
        """CPU time of the thread that wrote the newest one."""

    @classmethod
    def of(cls, state: State, policy: CheckpointPolicy, *, writes: bool, io_device: str | None = None) -> "Store":
        """The checkpoints of a job."""
        memory = None
        if policy.memory:
            memory = cls(state, policy.memory.directory, keep=2, writes=True, medium=MEMORY)
        return cls(
            state, policy.directory,
            keep=policy.keep, mirror=mirror_of(policy), memory=memory, writes=writes, io_device=io_device,
        )  # fmt: skip

    @property
    def enabled(self) -> bool:
        """Whether the job keeps checkpoints at all."""
        return self._directory is not None or self.memory is not None

    @property
    def writes(self) -> bool:
        """Whether this task writes any: those of the job, or its own in memory."""
        return (self._writes and self._directory is not None) or self.memory is not None

    @property
    def newest_step(self) -> int | None:
        """Step of the newest checkpoint, in memory or not, that this run wrote in full, or restored."""
        steps = [store.last_step for store in (self, self.memory) if store and store.last_step is not None]
        return max(steps, default=None)

    @property
    def newest_path(self) -> str | None:
        """Where that is."""
        return self.memory.path() if self.memory and self.last_step != self.newest_step else self.path()

    def save_async(self, step: int) -> None:
        """Saves while the training goes on. A failure is logged in one line; the next save tries again.

        Waits for the checkpoint before, if that is still being written, but not forever, and once for each.
        """
        seconds = self._mirror.retry_seconds if self._mirror else None
        if not self._writer.wait_for_previous(step, target=self._mirror or self._directory, seconds=seconds):
            self._read()
            return
        self._begin(step)
        if self._writer.writes(step):
            self._writer.warn_if_it_fails()

    def has_read(self, step: int) -> bool:
        """Whether the values of this step have been read, and are written or will be."""
        return self.last_step == step or self._writer.writes(step)

    def read_again(self, step: int) -> None:
        """Lets the next save of this step read its values, as that of a task does which has not written them."""
        if self.last_step == step:
            self.last_step = None

    def save(self, step: int) -> None:
        """Saves, unless this step is saved already, and returns when it is; does nothing without a directory.

        Raises:
            NotSaved: the directory does not take it. What was saved before is untouched.
        """
        if self._writer.writes(step):
            self._writer.finish()
        if self.last_step == step:
            return
        self._begin(step)
        self._writer.finish()

    def settle(self) -> None:
        """Waits for what is being written; returns also if it cannot be written, which is reported by then."""
        with suppress(NotSaved):
            self._writer.finish()

    def restore(self, step: int) -> None:
        """Restores the checkpoint of this step, which was read in full before.

        Raises:
            NotSaved: it cannot be read any more.
        """
        try:
            self._load(step)
        except Damaged as problem:
            path = checkpoints.path_of(self._directory or Path(), step)
            raise NotSaved(f"checkpoint {path} cannot be read any more ({problem}); check the volume") from None

    def take(self, state: State) -> None:
        """Takes this state in the place of one without its variables, and restores what that one did.

        Raises:
            NotSaved: it cannot be read any more.
            UsageError: it is of another model.
        """
        newest, stores = self.newest_step, [self, self.memory] if self.memory else [self]
        for store in stores:
            store._state = state
        if newest is not None:
            next(store for store in stores if store.last_step == newest).restore(newest)

    def problem_of(self, step: int) -> str | None:
        """Why the checkpoint of this step cannot be restored, in a few words; None if it can.

        Raises:
            Unreadable: its files are there, and cannot be read.
            UsageError: it is sound, but of another model.
        """
        try:
            self._read_from(step)
        except Damaged as problem:
            return str(problem)
        return None

    def path(self) -> str | None:
        """The path or URL of the newest checkpoint that this run wrote or restored."""
        if self._directory is None or self.last_step is None:
            return None
        if self._mirror:
            return f"{self._mirror}/{checkpoints.PREFIX}-{self.last_step}"
        return str(checkpoints.path_of(self._directory, self.last_step))

    def begin(self) -> None:
        """Makes the directory this run's; once, before the first checkpoint is read or written.

        Raises:
            TrainerError: another run uses the directory; or the bucket cannot be used.
        """
        if self._directory is None or self._begun:
            return
        if self._writes:
            directory_lock.hold(self._directory)
            # Of a process that was killed.
            for left in self._directory.glob(f"{DRAFT}*"):
                if _DRAFTS.fullmatch(left.name):
                    shutil.rmtree(left, ignore_errors=True)
        if self._mirror:
            self._begin_mirror(self._mirror, self._directory)
        self._begun = True

    def restore_newest(self, *, before: int = sys.maxsize) -> None:
        """Restores the newest checkpoint that is not damaged; says so for each that is.

        Args:
            before: only those of earlier steps count; the others make room as damaged ones do.

        Raises:
            Unreadable: one cannot be read, so that nobody knows.
            UsageError: there are sound checkpoints, but of another model; or another run uses the directory.
        """
        if self._directory is None:
            return
        self.begin()
        for step in self.steps():
            if step >= before:
                self._damaged.add(step)
                continue
            try:
                self._load(step)
            except Damaged as problem:
                self._damaged.add(step)
                path = checkpoints.path_of(self._directory, step)
                log.warning(f"checkpoint {path} cannot be used ({problem}); trying an older one")
            else:
                self._clear(self._directory)
                return

    def _clear(self, directory: Path) -> None:
        """Removes what a killed process has left of a checkpoint: data without an index.

        Another program's are named in the same way: to be called where a checkpoint of this trainer has been found.
        """
        if self._writes and not self._mirror:
            with suppress(OSError, Unreadable):
                for step in checkpoints.begun(directory).difference(checkpoints.find(directory)):
                    checkpoints.remove(directory, step)

    def restore_when_seen(self, step: int, *, seconds: float) -> None:
        """Restores the checkpoint of this step, which the leader has restored, as soon as this task can read it.

        Says so, and restores none, if that takes longer.

        Raises:
            Unreadable: its files are there, and cannot be read.
            UsageError: it is sound, but of another model.
        """
        if self._directory is None:
            return None
        self.begin()
        until = time.monotonic() + seconds
        while True:
            try:
                return self._load(step)
            except Unreadable:
                if time.monotonic() > until:
                    raise
            except Damaged as problem:
                if time.monotonic() > until:
                    path = checkpoints.path_of(self._directory, step)
                    log.warning(f"checkpoint {path}, which the leader has restored, cannot be used here ({problem})")
                    return None
            time.sleep(_LOOK_SECONDS)

    def newest_sound(self, *, before: int = sys.maxsize) -> int | None:
        """The step of the newest checkpoint that is not damaged; removes those that are, and says so.

        Args:
            before: only those of earlier steps count.

        Raises:
            Unreadable: one cannot be read, so that nobody knows.
            UsageError: it is of another model; or another process has the directory.
        """
        assert self._directory is not None
        self.begin()
        for step in (found for found in self.steps() if found < before):
            if (problem := self.problem_of(step)) is None:
                return step
            path = checkpoints.path_of(self._directory, step)
            log.warning(f"checkpoint {path} cannot be used ({problem}): it is removed")
            checkpoints.remove(self._directory, step)
        return None

    def steps(self) -> list[int]:
        """The steps that have a complete checkpoint, newest first.

        Raises:
            TrainerError: the bucket cannot be listed.
        """
        if self._directory is None:
            return []
        return self._mirror.steps() if self._mirror else checkpoints.find(self._directory)

    def upload_note(self, name: str) -> None:
        """Copies a small file of the directory to where the checkpoints are, if that is a bucket.

        Raises:
            TrainerError: the bucket does not take it.
        """
        if self._mirror:
            self._mirror.upload_note(name)

    def _begin_mirror(self, mirror: CheckpointMirror, directory: Path) -> None:
        """Makes the local copy one of what is complete in the bucket: all tasks have to find the same step."""
        if self._writes:
            mirror.take_over()
        try:
            for step in checkpoints.begun(directory):
                checkpoints.remove(directory, step)
            mirror.fetch_note(VALIDATION_RECORD)
        except OSError as error:
            raise NotSaved(
                f"{directory}: cannot hold the local copy of {mirror} ({storage_reason(error)}); make room there, or "
                "give another directory with --store-cache"
            ) from None

    def _read_from(self, step: int) -> Mapping[str, Any]:
        """The values of a checkpoint; see `State.read`, which finds what is missing in the directory."""
        assert self._directory is not None  # there is a checkpoint
        if self._mirror:
            self._mirror.fetch(step)
        return self._state.read(self._directory, step)

    def _load(self, step: int) -> None:
        self._state.restore(self._read_from(step))
        self.last_step = step

    def _read(self) -> list[Any]:
        return self._state.snapshot(self._device, often=self._medium.is_memory)

    def _begin(self, step: int) -> None:
        """Reads the values and has them written."""
        if self._directory is None or self.has_read(step):
            return
        values = self._read()
        if self._writes:
            self._writer.begin(step, partial(self._write, self._directory, step, values))
        else:
            self.last_step = step

    def _write(self, directory: Path, step: int, values: Sequence[Any]) -> None:
        """On the thread of the checkpoints.

        Raises:
            NotSaved: the directory does not take it.
        """
        draft, began = directory / self._draft, time.thread_time()
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            if self._medium.is_memory:
                checkpoints.keep_newest(directory)
            self._state.write(values, checkpoints.path_of(draft, step), self._device)
            checkpoints.publish(draft, directory, step)
            if self._mirror:
                self._upload(self._mirror, directory, step)
        except (StoreFailed, UsageError) as error:
            raise NotSaved(f"step {step} is not saved: {error}; {self._kept()}") from None
        except (tf.errors.OpError, OSError) as error:
            # The values may be another task's until they are written: whoever knows the tasks looks at the cause.
            lost = isinstance(error, tf.errors.UnavailableError)
            remedy = "see whether the volume and all tasks can be reached" if lost else self._medium.remedy
            raise NotSaved(
                f"checkpoint directory {directory}: step {step} cannot be saved ({storage_reason(error)}); "
                f"{self._kept()}; {remedy}"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.last_step = step
        try:
            self._prune(directory, step)
            if not self._medium.is_memory:
                checkpoints.write_list(directory)
        except TrainerError as error:
            log.warning(f"step {step} is saved, but older ones are not removed: {error}")
        except OSError as error:
            log.warning(f"checkpoint directory {directory}: step {step} is saved, but {storage_reason(error).lower()}")
        self.writing_seconds = time.thread_time() - began

    def _upload(self, mirror: CheckpointMirror, directory: Path, step: int) -> None:
        """Copies the checkpoint of this step to the bucket; without it there, the local copy is of no use."""
        try:
            mirror.upload(step)
        except TrainerError:
            checkpoints.remove(directory, step)
            raise

    def _kept(self) -> str:
        """What there is when a checkpoint could not be written."""
        before = self.path()
        return f"{before} stays" if before else "none was saved before"

    def _prune(self, directory: Path, step: int) -> None:
        """Removes the oldest. Newer ones than this step are another run's, or damaged: they are not counted."""
        self._damaged.discard(step)
        sound = [found for found in self.steps() if found <= step and found not in self._damaged]
        for old in {*sound[self._keep :], *(found for found in self._damaged if found < step)} - {self.pinned}:
            checkpoints.remove(directory, old)
            if self._mirror:
                self._mirror.remove(old)
            self._damaged.discard(old)
