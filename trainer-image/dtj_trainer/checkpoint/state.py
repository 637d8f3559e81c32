"""What a checkpoint holds, and whether one can be trusted.

It holds flat lists (weights, optimizer state) and two counters, not the objects of one Keras, so the evaluator, the
export and another strategy can read what any of them wrote. It also holds the name of each variable, so that one whose
values have the right shapes in another order is refused. Imports TensorFlow.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.checkpoint.files import path_of, require_readable
from dtj_trainer.errors import UsageError

FORMAT = 2
"""Of the checkpoints that are written."""
HEADER = "dtj_format"
"""The entry that holds the format and the names: JSON, as bytes."""

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_FAILURES = (tf.errors.OpError, LookupError, ValueError, RuntimeError)
"""What TensorFlow's reader makes of the status of the file layer."""
_REMEDY = "give the arguments of the run that wrote it, or an empty --checkpoint-dir"


def new_counter() -> Any:
    """A number of steps: int64, 0; the replicas of a strategy count it together."""
    return tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


class Damaged(Exception):
    """Content of a checkpoint is corrupt or missing; the message says what, in a few words."""


class State:
    """Everything that a run must remember."""

    def __init__(
        self,
        names: Mapping[str, Sequence[str]] | None = None,
        added: Collection[str] = (),
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
            added: parts that older checkpoints do not have; such a one leaves them as they are.
            step: int64, steps done.
            total_steps: int64, steps of the whole run.
            parts: lists by name: `weights` of the model, in its order; `optimizer`, all of its state, empty where
                there is none to restore; and what else there is.
        """
        self._variables = {"step": step, "total_steps": total_steps}
        for name, part in parts.items():
            self._variables |= {f"{name}/{index}": one for index, one in enumerate(part)}
        self.names = {name: list(given) for name, given in (names or {}).items() if given}
        for name, given in self.names.items():
            assert len(given) == len(parts[name]), name
        self._added = added
        self.missing: list[str] = []
        """Of the parts that were added, those that the restored checkpoint does not have."""
        self.refresh: Callable[[], object] = lambda: None
        """Called before each snapshot, for parts whose values are kept elsewhere."""
        self._read_often = tf.function(self._read, autograph=False)

    def snapshot(self, device: str, *, often: bool = False) -> list[Any]:
        """The values as they are now, as tensors on this device; later steps do not change them.

        A variable that each replica has its own share of is summed up over all tasks: every task has to read.

        Args:
            often: whether it is called so often that a trace pays.
        """
        self.refresh()
        return list(self._read_often(device) if often else self._read(device))

    def _read(self, device: str) -> list[Any]:
        with tf.device(device):
            return [tf.identity(tf.convert_to_tensor(one)) for one in self._variables.values()]

    def write(self, values: Sequence[Any], prefix: Path, device: str) -> None:
        """Writes what `snapshot` gave; not to be called under a strategy's scope, of which each thread has its own."""
        header = json.dumps({"format": FORMAT, "names": self.names}).encode()
        keys = [f"{name}{_VALUE}" for name in (*self._variables, HEADER)]
        with tf.device(device):
            # As numbers: text has no place on a GPU.
            tensors = [*values, tf.constant(np.frombuffer(header, np.uint8))]
            tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=keys, shape_and_slices=[""] * len(keys), tensors=tensors)

    def read(self, directory: Path, step: int) -> Mapping[str, Any]:
        """The values in the checkpoint of this step, which are all of this state.

        Reads every tensor, which checks its checksum, so that a restore cannot stop half way.

        Raises:
            Damaged: content is corrupt or missing.
            Unreadable: its files cannot be read.
            UsageError: it is sound, but not of these variables, or of another format.
        """
        path = path_of(directory, step)
        try:
            found, saved = self._contents(path)
        except _FAILURES:
            # TensorFlow's reader does not say which failure it was: if the bytes can be read, it is damage, unless it
            # has passed.
            require_readable(directory, step)
            try:
                found, saved = self._contents(path)
            except _FAILURES as error:
                raise Damaged(f"damaged: {str(error).strip().splitlines()[0][:100]}") from None
        missing = self._missing(found)
        for part, wanted in self.names.items():
            for place, (there, here) in enumerate(zip_longest(saved.get(part, wanted), wanted)):
                if there != here:
                    raise UsageError(
                        f"checkpoint {path}: {part}/{place} is {there or 'missing'}, this model wants "
                        f"{here or 'none'}; {_REMEDY}"
                    )
        for name, variable in self._variables.items():
            value = found.get(name)
            if value is None and name.partition("/")[0] in missing:
                continue
            if value is None or not variable.shape.is_compatible_with(value.shape):
                raise UsageError(
                    f"checkpoint {path}: {name}{self._called(name)} has shape {None if value is None else value.shape}"
                    f", this model wants {tuple(variable.shape)}; {_REMEDY}"
                )
        return found

    def _contents(self, path: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """The values that are wanted, and the names of all; reads every tensor."""
        kept, found = {HEADER, *self._variables}, dict[str, Any]()
        reader = tf.train.load_checkpoint(str(path))
        for key in reader.get_variable_to_shape_map():
            value, name = reader.get_tensor(key), key.removesuffix(_VALUE)
            found |= {name: value} if name in kept else {}
        return found, _names(found.get(HEADER), path)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Sets the variables to what `read` gave."""
        self.missing = self._missing(values)
        for name, variable in self._variables.items():
            if name in values:
                variable.assign(values[name])

    def _missing(self, values: Mapping[str, Any]) -> list[str]:
        there = {name.partition("/")[0] for name in values}
        return [part for part in self._added if part not in there]

    def _called(self, name: str) -> str:
        """` (encoder/dense/kernel)`, where a variable has such a name."""
        part, _, index = name.partition("/")
        known = self.names[part][int(index)] if part in self.names else ""
        return f" ({known})" if "/" in known else ""


def _names(header: Any, path: Path) -> dict[str, list[str]]:
    """The names that a checkpoint holds, by part.

    Raises:
        UsageError: it is of another format.
        ValueError: it cannot be read.
    """
    document: dict[str, Any] = {"format": None} if header is None else json.loads(header.tobytes())
    if document["format"] != FORMAT:
        raise UsageError(
            f"checkpoint {path} has format {document['format']}, and this trainer reads {FORMAT}; give the version "
            "of the trainer that wrote it, or an empty --checkpoint-dir"
        )
    names: dict[str, list[str]] = document["names"]
    return names
