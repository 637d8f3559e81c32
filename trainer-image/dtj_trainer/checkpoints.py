"""Checkpoints: which there are, which can be trusted, saving and restoring.

A checkpoint holds flat lists (weights, optimizer state) and two counters, not the objects of one Keras, so the
evaluator, the export and another strategy can read what any of them wrote. It is named after its step.

TensorFlow's own CheckpointManager is not used. Its asynchronous mode fails with Keras 3 (the second save makes
variables inside a function), it reads a damaged `checkpoint` file as an end of everything, and two processes that
save the same step take each other's draft away. Here the values are read between two steps, which is cheap, and
written by a thread of their own into a draft that carries the process's name; its files get their own names one by
one, the index last. Imports TensorFlow.
"""

import errno
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import NotSaved, UsageError
from dtj_trainer.outputs import write_atomically

PREFIX = "ckpt"

_DRAFT = ".saving-"
_MEANWHILE_SECONDS = 60.0
_AT_THE_END_SECONDS = 900.0


def find(directory: Path) -> list[int]:
    """The steps that have a complete checkpoint in the directory, newest first.

    TensorFlow writes the index file last, so its presence means that the data was written before it.
    """
    names = (path.stem.removeprefix(f"{PREFIX}-") for path in directory.glob(f"{PREFIX}-*.index"))
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def path_of(directory: Path, step: int) -> Path:
    """What TensorFlow calls the checkpoint of this step."""
    return directory / f"{PREFIX}-{step}"


class State:
    """Everything that a run must remember."""

    def __init__(self, *, step: Any, total_steps: Any, **parts: Sequence[Any]) -> None:
        """Takes tf.Variables.

        Args:
            step: int64, steps done.
            total_steps: int64, steps that the run is to do; tells the evaluator when it has seen the last.
            parts: lists by name: `weights` of the model, in its order; `optimizer`, all of its state, empty where
                there is none to restore; and what else there is.
        """
        self._parts: dict[str, Any] = {"step": step, "total_steps": total_steps} | {
            name: list(part) for name, part in parts.items()
        }
        self.checkpoint = tf.train.Checkpoint(**self._parts)
        self._copy: State | None = None

    @property
    def _variables(self) -> dict[str, Any]:
        """By name: `step`, `weights/0`, …"""
        found: dict[str, Any] = {}
        for name, part in self._parts.items():
            found |= {f"{name}/{index}": one for index, one in enumerate(part)} if _is_list(part) else {name: part}
        return found

    def expected(self) -> dict[str, tuple[int, ...]]:
        """Key in the checkpoint file -> shape."""
        return {f"{name}/.ATTRIBUTES/VARIABLE_VALUE": tuple(one.shape) for name, one in self._variables.items()}

    def read(self, device: str) -> list[Any]:
        """The values as they are now, as tensors on this device; later steps do not change them.

        A variable that each replica has its own share of is summed up over all tasks: every task has to read.
        """
        with tf.device(device):
            return [tf.identity(tf.convert_to_tensor(one)) for one in self._variables.values()]

    def write(self, values: Sequence[Any], prefix: Path, device: str) -> None:
        """Writes what `read` gave; not to be called under a strategy's scope, of which each thread has its own."""
        with tf.device(device):
            if self._copy is None:
                copies = iter([tf.Variable(value, trainable=False) for value in values])
                parts: dict[str, Any] = {
                    name: [next(copies) for _ in part] if _is_list(part) else next(copies)
                    for name, part in self._parts.items()
                }
                self._copy = State(**parts)
            else:
                for variable, value in zip(self._copy._variables.values(), values, strict=True):
                    variable.assign(value)
            self._copy.checkpoint.write(str(prefix))


def _is_list(part: Any) -> bool:
    return isinstance(part, list)


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
        say: Callable[[str], object],
    ) -> None:
        """Args:
        directory: None where the job keeps no checkpoints.
        keep: how many stay.
        writes: whether this task's checkpoints are the job's. All tasks of a collective have to call `save`, since
            reading the values may need all of them; one of them writes.
        io_device: the device that reads and writes; this process's first CPU where None.
        """
        self._state = state
        self._directory = directory
        self._keep = keep
        self._writes = writes
        self._device = io_device or "/device:CPU:0"
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)
        self._say = say
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._writing: tuple[int, Future[None]] | None = None
        self._draft = f"{_DRAFT}{socket.gethostname()}-{os.getpid()}"
        self._damaged: set[int] = set()
        self.last_step: int | None = None
        """Step of the newest checkpoint that this run wrote in full, or restored."""

    @property
    def keeps(self) -> bool:
        """Whether the job keeps checkpoints at all."""
        return self._directory is not None

    def save_meanwhile(self, step: int) -> None:
        """Saves while the training goes on. What fails is said in one line, and left to the next time.

        Waits for the checkpoint before, if that is still being written, but not for ever.
        """
        if self._writing and not self._writing[1].done():
            try:
                self._writing[1].exception(timeout=_MEANWHILE_SECONDS)
            except TimeoutError:
                self._say(
                    f"warning: step {step} is not saved: step {self._writing[0]} is still being written to "
                    f"{self._directory} after {_MEANWHILE_SECONDS:g} s"
                )
                self._read()
                return
        self._begin(step)
        if self._writing and self._writing[0] == step:
            self._writing[1].add_done_callback(self._warn)

    def save(self, step: int) -> None:
        """Saves, unless this step is saved already, and returns when it is; does nothing without a directory.

        Raises:
            NotSaved: the directory does not take it. What was saved before is untouched.
        """
        if self._writing and self._writing[0] == step:
            self._finish()
        if self.last_step == step:
            return
        self._begin(step)
        if self._writing:
            self._finish()

    def path(self) -> Path | None:
        """The newest checkpoint that this run wrote or restored."""
        return path_of(self._directory, self.last_step) if self._directory and self.last_step is not None else None

    def restore_newest(self) -> None:
        """Restores the newest checkpoint that can be read in full; says so for each that cannot.

        Raises:
            UsageError: there are sound checkpoints, but of another model.
        """
        if self._directory is None:
            return
        if self._writes:
            # Of a process that was killed. One that still lives loses a save that nobody waits for.
            for left in self._directory.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)
        for step in find(self._directory):
            path = path_of(self._directory, step)
            if problem := examine(self._directory, step, self._state.expected()):
                self._damaged.add(step)
                self._say(f"warning: checkpoint {path} cannot be used ({problem}); trying an older one")
                continue
            self._state.checkpoint.read(str(path), options=self._options).assert_existing_objects_matched()
            self.last_step = step
            return

    def _read(self) -> list[Any]:
        return self._state.read(self._device)

    def _begin(self, step: int) -> None:
        """Reads the values and has them written."""
        if self._directory is None or (self._writing and self._writing[0] == step) or self.last_step == step:
            return
        values = self._read()
        if self._writes:
            self._writing = step, self._pool.submit(self._write, self._directory, step, values)
        else:
            self.last_step = step

    def _finish(self) -> None:
        """Waits for what is being written."""
        assert self._writing is not None
        step, writing = self._writing
        try:
            writing.result(timeout=_AT_THE_END_SECONDS)
        except TimeoutError:
            raise NotSaved(
                f"checkpoint directory {self._directory}: step {step} was not written within "
                f"{_AT_THE_END_SECONDS:g} s; look after the volume"
            ) from None
        finally:
            self._writing = None

    def _warn(self, writing: Future[None]) -> None:
        if error := writing.exception():
            self._say(f"warning: {error}; the training goes on and tries again")

    def _write(self, directory: Path, step: int, values: Sequence[Any]) -> None:
        """On the thread of the checkpoints.

        Raises:
            NotSaved: the directory does not take it.
        """
        draft = directory / self._draft
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            self._state.write(values, path_of(draft, step), self._device)
            _publish(draft, directory, step)
        except (tf.errors.OpError, OSError) as error:
            before = self.path()
            stays = f"{before} stays" if before else "none was saved before"
            raise NotSaved(
                f"checkpoint directory {directory}: step {step} cannot be saved ({_reason(error)}); {stays}; "
                "make room there, or mount a volume that can be written"
            ) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.last_step = step
        try:
            self._prune(directory, step)
            _list(directory)
        except OSError as error:
            self._say(f"warning: checkpoint directory {directory}: step {step} is saved, but {_reason(error).lower()}")

    def _prune(self, directory: Path, step: int) -> None:
        """Removes the oldest. Newer ones than this step are another run's, or damaged: they are not counted."""
        sound = [found for found in find(directory) if found <= step and found not in self._damaged - {step}]
        self._damaged.discard(step)
        for old in {*sound[self._keep :], *(found for found in self._damaged if found < step)}:
            name = path_of(directory, old).name
            for path in (directory / f"{name}.index", *directory.glob(f"{name}.data-*")):
                path.unlink(missing_ok=True)
            self._damaged.discard(old)


def _publish(draft: Path, directory: Path, step: int) -> None:
    """Gives the files of a draft their names, the index last: what has an index is whole."""
    name = path_of(directory, step).name
    (directory / f"{name}.index").unlink(missing_ok=True)
    for path in sorted(draft.glob(f"{name}.*"), key=lambda path: path.suffix == ".index"):
        _flush(path)
        path.replace(directory / path.name)


def _flush(path: Path) -> None:
    """Has the file on the disk before its name says so: the next step removes an older checkpoint."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call; theirs is then the write itself.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _list(directory: Path) -> None:
    """Writes the file `checkpoint`, by which TensorFlow's `latest_checkpoint` and TensorBoard find the newest."""
    names = [path_of(directory, step).name for step in reversed(find(directory))]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    write_atomically(directory / "checkpoint", "\n".join(lines) + "\n")


def _reason(error: Exception) -> str:
    """`No space left on device`, out of what TensorFlow says around it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).partition(" [Op:")[0].strip().splitlines()[0].rpartition("; ")[2][:200]


def examine(directory: Path, step: int, expected: Mapping[str, tuple[int, ...]]) -> str | None:
    """What is wrong with the checkpoint of this step, in a few words; None when it is sound.

    Reads every tensor, which checks its checksum, so that a restore cannot stop half way.

    Raises:
        UsageError: the checkpoint is sound, but not of these variables.
    """
    path = path_of(directory, step)
    try:
        reader = tf.train.load_checkpoint(str(path))
        shapes = {key: tuple(shape) for key, shape in reader.get_variable_to_shape_map().items()}
        for key in shapes:
            reader.get_tensor(key)
    # The reader turns the status of the file layer into whatever Python has for it.
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        return f"damaged: {str(error).strip().splitlines()[0][:100]}"
    for key, shape in expected.items():
        if shapes.get(key) != shape:
            raise UsageError(
                f"checkpoint {path}: {key.partition('/.')[0]} has shape {shapes.get(key)}, this model wants "
                f"{shape}; give the arguments of the run that wrote it, or an empty --checkpoint-dir"
            )
    return None
