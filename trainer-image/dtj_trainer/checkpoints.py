"""Checkpoints: which there are, which can be trusted, saving and restoring.

A checkpoint holds flat lists (weights, optimizer state) and two counters, not the objects of one Keras, so the
evaluator, the export and another strategy can read what any of them wrote. It is named after its step.
Imports TensorFlow.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import UsageError

PREFIX = "ckpt"


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

    def __init__(self, *, weights: Sequence[Any], optimizer: Sequence[Any], step: Any, total_steps: Any) -> None:
        """Takes tf.Variables.

        Args:
            weights: of the model, in the model's order.
            optimizer: all state of the optimizer; empty where there is none to restore.
            step: int64, steps done.
            total_steps: int64, steps that the run is to do; tells the evaluator when it has seen the last.
        """
        self.step = step
        self.total_steps = total_steps
        self._parts = {"weights": list(weights), "optimizer": list(optimizer), "step": step, "total_steps": total_steps}
        self.checkpoint = tf.train.Checkpoint(**self._parts)

    def expected(self) -> dict[str, tuple[int, ...]]:
        """Key in the checkpoint file -> shape."""
        keys = {"step": self.step, "total_steps": self.total_steps}
        for part in ("weights", "optimizer"):
            keys |= {f"{part}/{index}": variable for index, variable in enumerate(self._parts[part])}
        return {f"{key}/.ATTRIBUTES/VARIABLE_VALUE": tuple(variable.shape) for key, variable in keys.items()}


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
        writes: whether this task's checkpoints are the job's. All tasks of a collective have to save, since
            saving may need all of them; the others save into a directory that is thrown away.
        io_device: the device that reads and writes; each variable's own where None.
        """
        self._state = state
        self._directory = directory
        self._say = say
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)
        throws_away = directory is not None and not writes
        self._scratch = tempfile.TemporaryDirectory(prefix="dtj-checkpoints-") if throws_away else None
        self._manager = directory and tf.train.CheckpointManager(
            state.checkpoint,
            str(directory) if self._scratch is None else self._scratch.name,
            max_to_keep=keep if writes else 1,
            checkpoint_name=PREFIX,
        )
        self.last_step: int | None = None
        """Step of the newest checkpoint that this run wrote or restored."""

    @property
    def keeps(self) -> bool:
        """Whether the job keeps checkpoints at all."""
        return self._directory is not None

    def save(self, step: int) -> None:
        """Saves unless this step is saved already; does nothing without a directory."""
        if self._manager and self.last_step != step:
            self._manager.save(checkpoint_number=step, options=self._options)
            self.last_step = step

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
        for step in find(self._directory):
            path = path_of(self._directory, step)
            if problem := examine(self._directory, step, self._state.expected()):
                self._say(f"warning: checkpoint {path} cannot be used ({problem}); trying an older one")
                continue
            self._state.checkpoint.read(str(path), options=self._options).assert_existing_objects_matched()
            self.last_step = step
            return

    def discard_scratch(self) -> None:
        """Removes what a task saved that is not to keep."""
        if self._scratch is not None:
            self._scratch.cleanup()


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
