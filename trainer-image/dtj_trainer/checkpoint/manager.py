"""Checkpoints: which there are, which can be trusted, saving and restoring.

A checkpoint holds flat lists (weights, optimizer state) and two counters, not the objects of one Keras, so the
evaluator, the export and another strategy can read what any of them wrote. It is named after its step. Since format 2
it also holds the name of each variable, so that one whose values have the right shapes in another order is refused.

TensorFlow's own CheckpointManager is not used. Its asynchronous mode fails with Keras 3 (the second save makes
variables inside a function), it reads a damaged `checkpoint` file as an end of everything, and two processes that
save the same step take each other's draft away. Here the values are read between two steps, which is cheap, and
written by a thread of their own into a draft that carries the process's name; its files get their own names one by
one, the index last. Imports TensorFlow.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.checkpoint import directory_lock
from dtj_trainer.process.errors import NotSaved, UsageError
from dtj_trainer.process.output_directories import write_atomically

PREFIX = "ckpt"

FORMAT = 2
"""Of the checkpoints that are written. Format 1 has neither this number nor names."""
HEADER = "dtj_format"
"""The entry that holds the format and the names: JSON, as bytes."""

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_DRAFT = ".saving-"
_MEANWHILE_SECONDS = 60.0
AT_THE_END_SECONDS = 900.0


def find(directory: Path) -> list[int]:
    """The steps that have a complete checkpoint in the directory, newest first.

    TensorFlow writes the index file last, so its presence means that the data was written before it.
    """
    names = (path.stem.removeprefix(f"{PREFIX}-") for path in directory.glob(f"{PREFIX}-*.index"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def path_of(directory: Path, step: int) -> Path:
    """What TensorFlow calls the checkpoint of this step."""
    return directory / f"{PREFIX}-{step}"


OPTIONAL = ("rate",)
"""Parts that a checkpoint may lack: what they remember keeps its present value then."""


class State:
    """Everything that a run must remember."""

    def __init__(
        self,
        names: Mapping[str, Sequence[str]] | None = None,
        /,
        *,
        step: Any,
        total_steps: Any,
        **parts: Sequence[Any],
    ) -> None:
        """Takes tf.Variables.

        Args:
            names: for each part the names of its variables: see `variable_names`. A part without is compared by
                shapes alone.
            step: int64, steps done.
            total_steps: int64, steps that the run is to do; tells the evaluator when it has seen the last.
            parts: lists by name: `weights` of the model, in its order; `optimizer`, all of its state, empty where
                there is none to restore; and what else there is.
        """
        self._parts: dict[str, Any] = {"step": step, "total_steps": total_steps} | {
            name: list(part) for name, part in parts.items()
        }
        self.names = {name: list(given) for name, given in (names or {}).items() if given}
        for name, given in self.names.items():
            assert len(given) == len(self._parts[name]), name
        self.checkpoint = tf.train.Checkpoint(**self._parts)
        self._copy: State | None = None
        self._writer: tf.train.Checkpoint | None = None

    @property
    def _variables(self) -> dict[str, Any]:
        """By name: `step`, `weights/0`, …"""
        found: dict[str, Any] = {}
        for name, part in self._parts.items():
            found |= {f"{name}/{index}": one for index, one in enumerate(part)} if _is_list(part) else {name: part}
        return found

    def expected(self) -> dict[str, tuple[int, ...]]:
        """Key in the checkpoint file -> shape."""
        return {f"{name}{_VALUE}": tuple(one.shape) for name, one in self._variables.items()}

    def present_in(self, path: Path) -> tf.train.Checkpoint:
        """What of this is in a sound checkpoint: all but some of what is `OPTIONAL`."""
        there = {entry.partition("/")[0] for entry, _ in tf.train.list_variables(str(path))}
        if there >= self._parts.keys():
            return self.checkpoint
        return tf.train.Checkpoint(**{name: part for name, part in self._parts.items() if name in there})

    def snapshot(self, device: str) -> list[Any]:
        """The values as they are now, as tensors on this device; later steps do not change them.

        A variable that each replica has its own share of is summed up over all tasks: every task has to read.
        """
        with tf.device(device):
            return [tf.identity(tf.convert_to_tensor(one)) for one in self._variables.values()]

    def write(self, values: Sequence[Any], prefix: Path, device: str) -> None:
        """Writes what `snapshot` gave; not to be called under a strategy's scope, of which each thread has its own."""
        with tf.device(device):
            if self._copy is None:
                copies = iter([tf.Variable(value, trainable=False) for value in values])
                parts: dict[str, Any] = {
                    name: [next(copies) for _ in part] if _is_list(part) else next(copies)
                    for name, part in self._parts.items()
                }
                self._copy = State(**parts)
                header = json.dumps({"format": FORMAT, "names": self.names}).encode()
                # As numbers: text has no place on a GPU.
                numbers = tf.Variable(np.frombuffer(header, np.uint8), trainable=False)
                self._writer = tf.train.Checkpoint(**parts, **{HEADER: numbers})
            else:
                for variable, value in zip(self._copy._variables.values(), values, strict=True):
                    variable.assign(value)
            assert self._writer is not None
            self._writer.write(str(prefix))


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
        self.pinned: int | None = None
        """A step whose checkpoint stays, however many come after it."""

    @property
    def enabled(self) -> bool:
        """Whether the job keeps checkpoints at all."""
        return self._directory is not None

    def save_async(self, step: int) -> None:
        """Saves while the training goes on. What fails is said in one line, and left to the next time.

        Waits for the checkpoint before, if that is still being written, but not forever.
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

    def settle(self) -> None:
        """Waits for what is being written; returns also if it cannot be written, which is reported by then."""
        if self._writing:
            with suppress(NotSaved):
                self._finish()

    def restore(self, step: int) -> None:
        """Restores the checkpoint of this step, which this run wrote or restored.

        Raises:
            NotSaved: it cannot be read any more.
        """
        assert self._directory is not None  # there is a checkpoint
        path = path_of(self._directory, step)
        if problem := examine(self._directory, step, self._state.expected(), self._state.names):
            raise NotSaved(f"checkpoint {path} cannot be read any more ({problem}); look after the volume")
        self._load(path, step)

    def path(self) -> Path | None:
        """The newest checkpoint that this run wrote or restored."""
        return path_of(self._directory, self.last_step) if self._directory and self.last_step is not None else None

    def restore_newest(self) -> None:
        """Restores the newest checkpoint that can be read in full; says so for each that cannot.

        Raises:
            UsageError: there are sound checkpoints, but of another model; or another run uses the directory.
        """
        if self._directory is None:
            return
        if self._writes:
            directory_lock.hold(self._directory, say=self._say)
            # Of a process that was killed.
            for left in self._directory.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)
        for step in find(self._directory):
            path = path_of(self._directory, step)
            if problem := examine(self._directory, step, self._state.expected(), self._state.names):
                self._damaged.add(step)
                self._say(f"warning: checkpoint {path} cannot be used ({problem}); trying an older one")
                continue
            self._load(path, step)
            return

    def _load(self, path: Path, step: int) -> None:
        here = self._state.present_in(path)
        status = here.read(str(path), options=self._options).assert_existing_objects_matched()
        # The header belongs to no variable, of which TensorFlow would warn at the end.
        status.expect_partial()
        self.last_step = step

    def _read(self) -> list[Any]:
        return self._state.snapshot(self._device)

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
            writing.result(timeout=AT_THE_END_SECONDS)
        except TimeoutError:
            raise NotSaved(
                f"checkpoint directory {self._directory}: step {step} was not written within "
                f"{AT_THE_END_SECONDS:g} s; look after the volume"
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
        for old in {*sound[self._keep :], *(found for found in self._damaged if found < step)} - {self.pinned}:
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


def examine(
    directory: Path,
    step: int,
    expected: Mapping[str, tuple[int, ...]],
    names: Mapping[str, Sequence[str]] | None = None,
) -> str | None:
    """What is wrong with the checkpoint of this step, in a few words; None when it is sound.

    Reads every tensor, which checks its checksum, so that a restore cannot stop half way.

    Args:
        expected: key in the file -> shape.
        names: of the variables of each part; compared where the checkpoint has names of this part too.

    Raises:
        UsageError: the checkpoint is sound, but not of these variables, or of a newer format.
    """
    path = path_of(directory, step)
    try:
        reader = tf.train.load_checkpoint(str(path))
        shapes = {key: tuple(shape) for key, shape in reader.get_variable_to_shape_map().items()}
        for key in shapes:
            reader.get_tensor(key)
        saved = _header(reader, path) if f"{HEADER}{_VALUE}" in shapes else {}
    # The reader turns the status of the file layer into whatever Python has for it.
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        return f"damaged: {str(error).strip().splitlines()[0][:100]}"
    remedy = "give the arguments of the run that wrote it, or an empty --checkpoint-dir"
    for part, wanted in (names or {}).items():
        for place, (there, here) in enumerate(zip_longest(saved.get(part, wanted), wanted)):
            if there != here:
                raise UsageError(
                    f"checkpoint {path}: {part}/{place} is {there or 'missing'}, this model wants {here or 'none'}; "
                    f"{remedy}"
                )
    for key, shape in expected.items():
        if shapes.get(key) != shape and not (key.partition("/")[0] in OPTIONAL and key not in shapes):
            entry = key.partition("/.")[0]
            part, _, index = entry.rpartition("/")
            name = names[part][int(index)] if names and part in names else ""
            name = f" ({name})" if "/" in name else ""
            raise UsageError(
                f"checkpoint {path}: {entry}{name} has shape {shapes.get(key)}, this model wants {shape}; {remedy}"
            )
    return None


def _header(reader: Any, path: Path) -> dict[str, list[str]]:
    """The names that a checkpoint holds, by part.

    Raises:
        UsageError: it is of a newer format.
        ValueError: it is none.
    """
    header = json.loads(reader.get_tensor(f"{HEADER}{_VALUE}").tobytes())
    if header["format"] > FORMAT:
        raise UsageError(
            f"checkpoint {path} has format {header['format']}, and this trainer reads up to {FORMAT}; give the version "
            "of the trainer that wrote it, or an empty --checkpoint-dir"
        )
    names: dict[str, list[str]] = header["names"]
    return names
