"""What a checkpoint holds, and whether one can be trusted.

It holds flat lists (weights, optimizer state) and two counters, not the objects of one Keras, so the evaluator, the
export and another strategy can read what any of them wrote. It also holds the name of each variable, so that one whose
values have the right shapes in another order is refused. Imports TensorFlow.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.checkpoint.files import path_of
from dtj_trainer.errors import UsageError

FORMAT = 2
"""Of the checkpoints that are written."""
HEADER = "dtj_format"
"""The entry that holds the format and the names: JSON, as bytes."""

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


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
            total_steps: int64, steps of the whole run; with it, the evaluator knows which checkpoint is the last.
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
        self.refresh: Callable[[], object] = lambda: None
        """Called before each snapshot, for parts whose values are kept elsewhere."""
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
        """Key in the checkpoint file -> shape, where it is known."""
        known = {name: one.shape for name, one in self._variables.items() if one.shape.is_fully_defined()}
        return {f"{name}{_VALUE}": tuple(shape) for name, shape in known.items()}

    def snapshot(self, device: str) -> list[Any]:
        """The values as they are now, as tensors on this device; later steps do not change them.

        A variable that each replica has its own share of is summed up over all tasks: every task has to read.
        """
        self.refresh()
        with tf.device(device):
            return [tf.identity(tf.convert_to_tensor(one)) for one in self._variables.values()]

    def write(self, values: Sequence[Any], prefix: Path, device: str) -> None:
        """Writes what `snapshot` gave; not to be called under a strategy's scope, of which each thread has its own."""
        with tf.device(device):
            if self._copy is None:
                shapes = [one.shape for one in self._variables.values()]
                copies = iter(
                    [
                        tf.Variable(value, trainable=False, shape=shape)
                        for value, shape in zip(values, shapes, strict=True)
                    ]
                )
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
        saved = _names(reader, path)
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
        if shapes.get(key) != shape:
            entry = key.partition("/.")[0]
            part, _, index = entry.rpartition("/")
            name = names[part][int(index)] if names and part in names else ""
            name = f" ({name})" if "/" in name else ""
            raise UsageError(
                f"checkpoint {path}: {entry}{name} has shape {shapes.get(key)}, this model wants {shape}; {remedy}"
            )
    return None


def _names(reader: Any, path: Path) -> dict[str, list[str]]:
    """The names that a checkpoint holds, by part.

    Raises:
        UsageError: it is of another format.
        LookupError, ValueError: it has none.
    """
    header = json.loads(reader.get_tensor(f"{HEADER}{_VALUE}").tobytes())
    if header["format"] != FORMAT:
        raise UsageError(
            f"checkpoint {path} has format {header['format']}, and this trainer reads {FORMAT}; give the version "
            "of the trainer that wrote it, or an empty --checkpoint-dir"
        )
    names: dict[str, list[str]] = header["names"]
    return names
