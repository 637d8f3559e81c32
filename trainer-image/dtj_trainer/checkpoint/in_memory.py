"""Copies of the training state in the memory of each task, and how the tasks find the newest one together.

Under a synchronous strategy all tasks hold the same state, so one that has lost its copies gets those of another. The
bytes take the way of the gradients: a sum over all replicas to which one task alone adds something. No port is opened,
and a copy is trusted as much as the training itself. Imports TensorFlow.
"""

import hashlib
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.checkpoint import attempts
from dtj_trainer.checkpoint import files as checkpoints
from dtj_trainer.checkpoint.manager import MEMORY, RECEIVED, Store
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.nonfinite import workers_of
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.agreement import KEY_VALUE_SECONDS, of_each_replica
from dtj_trainer.errors import NotSaved, PeerLost, TrainerError

log = logging.getLogger(__name__)

_NONE, _UNUSABLE = 0, -1
_CHUNK_BYTES = 1 << 24
"""What one sum carries, so that a task needs a few times that and no more, whatever the size of a model."""
_WORD = np.dtype(np.int64)
"""What is summed: sums of whole numbers are exact, and those of 64 bits live on every device."""


@dataclass(frozen=True)
class Newest:
    """The newest copy of all tasks."""

    step: int
    """0: there is none."""
    replica: int
    """The first of those whose task has it; that task sends."""

    @classmethod
    def of(cls, steps: Sequence[int]) -> "Newest":
        """Of the step that the task of each replica has."""
        newest = max(steps)
        return cls(newest, steps.index(newest))

    def wanted_by(self, digests: Sequence[int]) -> list[int]:
        """The replicas whose tasks do not have just these bits.

        Args:
            digests: of what the task of each replica has of this step; 0 where it has nothing.
        """
        return [replica for replica, digest in enumerate(digests) if digest != digests[self.replica]]


class Copies:
    """The copies of this task, next to those of all others. All tasks have to call the same methods."""

    def __init__(
        self, config: Config, strategy: Any, store: Store, *, waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Args:
        store: of this task's copies.
        waiting: entered while this task waits for the others.
        """
        assert config.checkpoint.memory is not None
        self._directory = config.checkpoint.memory.directory
        self._cluster = config.cluster
        self._strategy = strategy
        self._store = store
        self._waiting = waiting
        self._replicas: int = strategy.num_replicas_in_sync
        tasks = config.cluster.trainers or [config.cluster.task]
        self._first_replica = tasks.index(config.cluster.task) * self._replicas // len(tasks)
        self._own = _NONE

    def given_up(self) -> int:
        """The step of the checkpoint that no task is to begin with any more: see `attempts`; 0: there is none."""
        return max(self._of_each(attempts.given_up(self._directory)))

    def remove(self, down_to: int) -> None:
        """Removes the copies of this step, and of later ones, on all tasks; what cannot be removed stays."""
        for step in checkpoints.find(self._directory):
            if step >= down_to:
                with suppress(OSError):
                    checkpoints.remove(self._directory, step)

    def find(self, *, before: int = sys.maxsize) -> Newest:
        """The newest copy that some task can read in full.

        Args:
            before: only those of earlier steps count.

        Raises:
            TrainerError: this task's is of another model, or another process has its directory.
            PeerLost: that of another task is.
        """
        failure = None
        try:
            self._own = self._store.newest_sound(before=before) or _NONE
        except TrainerError as error:
            self._own, failure = _UNUSABLE, error
        steps = self._of_each(self._own)
        self._end_together(failure, [replica for replica, step in enumerate(steps) if step == _UNUSABLE])
        return Newest.of(steps)

    def restore(self, newest: Newest) -> None:
        """Restores this copy on all tasks; those that lack it get it first.

        Raises:
            NotSaved: it does not fit into the memory of this task.
            PeerLost: it does not fit into that of another one.
        """
        mine = _files_of(self._directory, newest.step) if self._own == newest.step else []
        digests = self._of_each(_digest(mine) if mine else 0)
        if wanted := newest.wanted_by(digests):
            failure = None
            files = mine if self._first_replica == newest.replica else []
            try:
                self._hand_over(newest, files, digests[newest.replica], takes=self._first_replica in wanted)
            except NotSaved as error:
                failure = error
            failed = self._of_each(int(failure is not None))
            self._end_together(failure, [replica for replica, one in enumerate(failed) if one])
        self._store.restore(newest.step)

    def _hand_over(self, newest: Newest, files: Sequence[Path], digest: int, *, takes: bool) -> None:
        """Sends the files of a copy to all tasks, of which some take it.

        Args:
            files: of the task that sends; empty on the others.

        Raises:
            NotSaved: this task cannot take it.
        """
        sizes = [path.stat().st_size for path in files] or [0, 0]
        sizes = [self._of_each(size)[newest.replica] for size in sizes]
        name = checkpoints.path_of(self._directory, newest.step).name
        draft = self._directory / RECEIVED
        received = [draft / f"{name}{ending}" for ending in _ENDINGS]
        problem: OSError | None = None
        if takes:
            shutil.rmtree(draft, ignore_errors=True)
            try:
                checkpoints.keep_newest(self._directory)
                draft.mkdir(parents=True)
            except OSError as error:
                problem = error
        for place, size in enumerate(sizes):
            for chunk in self._sent(files[place] if files else None, size, newest.replica):
                # All take part in each sum, whatever has happened to one of them.
                if takes and problem is None:
                    try:
                        with received[place].open("ab") as file:
                            file.write(chunk)
                    except OSError as error:
                        problem = error
        if not takes:
            return
        try:
            if problem is None and _digest(received) == digest:
                checkpoints.publish(draft, self._directory, newest.step)
                whose = ", ".join(workers_of(self._cluster, [newest.replica], total=self._replicas))
                log.info(f"step {newest.step}: {sum(sizes) / 1e6:.1f} MB came from the memory of {whose}")
                return
        except OSError as error:
            problem = error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        why = f"cannot be written here ({problem.strerror})" if problem else "arrived with other bits"
        raise NotSaved(
            f"memory for checkpoints {self._directory}: step {newest.step} of {sum(sizes) / 1e6:.1f} MB {why}; "
            f"{MEMORY.remedy}"
        )

    def _sent(self, path: Path | None, size: int, replica: int) -> Iterator[bytes]:
        """The content of a file in pieces, as all tasks see it.

        Args:
            path: of the task that sends; None on the others.
            replica: one of that task.
        """
        with (path or Path("/dev/zero")).open("rb") as file:
            for start in range(0, size, _CHUNK_BYTES):
                length = min(_CHUNK_BYTES, size - start)
                padding = b"\0" * (-length % _WORD.itemsize)
                words = np.frombuffer(file.read(length) + padding, _WORD)
                with self._waiting():
                    yield _from_one(self._strategy, words, replica)[:length]

    def _of_each(self, number: int) -> list[int]:
        with self._waiting():
            return of_each_replica(self._strategy, number)

    def _end_together(self, failure: TrainerError | None, replicas: Sequence[int]) -> None:
        """Ends on all tasks if one of them cannot go on.

        Args:
            failure: of this task.
            replicas: of those that cannot.
        """
        if not replicas:
            return
        with suppress(tf.errors.OpError):
            compat.wait_at_barrier("dtj-restore", seconds=KEY_VALUE_SECONDS)
        who = ", ".join(workers_of(self._cluster, replicas, total=self._replicas))
        raise failure or PeerLost(f"peer lost: {who} cannot use the checkpoint in memory; its last words say why")


_ENDINGS = (".data-00000-of-00001", ".index")
"""A state is written on one device, so that it has one file of values."""


def _files_of(directory: Path, step: int) -> list[Path]:
    path = checkpoints.path_of(directory, step)
    return [path.with_name(path.name + ending) for ending in _ENDINGS]


def _digest(files: Sequence[Path]) -> int:
    """Of all files in this order, as a number that a sum over the tasks can carry; it is not 0."""
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return int.from_bytes(total.digest()[:7], "big") | 1


def _from_one(strategy: Any, words: Any, replica: int) -> bytes:
    """What the task of this replica brings; the others bring words that nobody looks at."""

    def own() -> Any:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.where(tf.equal(place, replica), words, tf.zeros_like(words))

    found: bytes = strategy.reduce("SUM", strategy.run(own), axis=None).numpy().tobytes()
    return found
