"""What Keras' callbacks count themselves, as a checkpoint holds it, so that a resumed `fit` is the uninterrupted one.

EarlyStopping has its patience, ReduceLROnPlateau its cooldown, ModelCheckpoint its best value, and a class of a user's
any numbers. All callbacks see the same logs on all workers, so the values of one worker are those of all. The format
is JSON and the bytes of arrays: a checkpoint must not be able to run code. Imports TensorFlow.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.tasks.aggregation import Measured, Objective

log = logging.getLogger(__name__)

_KNOWN = {
    "Callback", "EarlyStopping", "History", "LambdaCallback", "LearningRateScheduler", "ModelCheckpoint",
    "MonitorCallback", "ReduceLROnPlateau", "TerminateOnNaN",
}  # fmt: skip
"""Classes of Keras' whose values may be restored. Others keep what belongs to a process, such as open files."""
_OF_KERAS = ("keras.", "tf_keras.")
_SETTINGS = ("params", "min_delta")
"""Attributes that `fit` sets again. Keras 3 changes the sign of min_delta when the first epoch ends."""
_LENGTH = 8
"""Bytes of the number that says how long the JSON is."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where `fit` stood."""

    steps_per_epoch: int
    ended: int
    """Epochs of which the callbacks have seen the end."""
    stopped: bool
    """Whether a callback has stopped the training."""
    sums: Any
    """float64, shape (sums of the objective,): what the epoch has measured; None: nothing."""


class CallbackState:
    """One part of a checkpoint: see `State`."""

    def __init__(self, *, writes: bool) -> None:
        """Args:
        writes: whether this task writes the checkpoints.
        """
        self._writes = writes
        with tf.device("CPU:0"):
            self.variable = tf.Variable(tf.zeros([0], tf.uint8), trainable=False, shape=[None])
        self.objective: Objective | None = None
        """Of the training, once it is made."""
        self._callbacks: Sequence[Any] = ()
        self._made: list[dict[str, bytes]] = []
        self._begun: list[dict[str, bytes]] = []
        self._saved: Sequence[Mapping[str, Any]] = ()
        self._progress: Callable[[], Progress] | None = None

    def refresh(self) -> None:
        """Puts what the callbacks have now into the variable."""
        if self._progress is None or not self._writes:
            return
        values = zip(self._callbacks, self._made, self._begun, strict=True) if self._begun else ()
        document = asdict(self._progress()) | {"callbacks": [_changed(*each) for each in values]}
        self.variable.assign(np.frombuffer(pack(document), np.uint8))

    def watch(self, callbacks: Sequence[Any], progress: Callable[[], Progress]) -> Progress | None:
        """Keeps these callbacks from now on, which have not begun; where they stood in the run before this one.

        Args:
            progress: where `fit` stands.
        """
        self._callbacks = [one for one in callbacks if _is_kept(one)]
        self._made, self._begun, self._saved = [_packed_values(one) for one in self._callbacks], [], ()
        content = self.variable.numpy().tobytes()
        self._progress = progress
        if not content:
            return None
        document = unpack(content)
        self._saved = document.pop("callbacks")
        return Progress(**document)

    def begun(self) -> None:
        """Lets the callbacks, which have just begun, go on where they stood."""
        self._begun = [_packed_values(one) for one in self._callbacks]
        kinds = [type(one).__name__ for one in self._callbacks]
        if self._saved and [saved["kind"] for saved in self._saved] != kinds:
            log.warning("the checkpoint holds the state of other callbacks than these, which begin again")
            return
        for callback, saved in zip(self._callbacks, self._saved, strict=False):
            for name, value in saved["values"].items():
                setattr(callback, name, value)

    def measured(self, sums: Any) -> Measured | None:
        """What the epoch had measured; None if it had nothing, or other metrics."""
        if sums is None or self.objective is None or len(sums) != self.objective.size:
            return None
        return Measured(sums, self.objective.means)


def _is_kept(callback: Any) -> bool:
    """Whether a callback keeps only what a checkpoint may hold."""
    kinds = [kind for kind in type(callback).__mro__ if kind.__module__.startswith(_OF_KERAS)]
    return all(kind.__name__ in _KNOWN for kind in kinds)


def _packed_values(callback: Any) -> dict[str, bytes]:
    found = {name: _try_pack(value) for name, value in vars(callback).items() if name not in _SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


def _changed(callback: Any, made: Mapping[str, bytes], begun: Mapping[str, bytes]) -> dict[str, Any]:
    """What is no longer as it was made, or as it began: the rest is what the user has set, and may set otherwise."""
    now = _packed_values(callback)
    names = [name for name, value in now.items() if not value == made.get(name) == begun.get(name)]
    return {"kind": type(callback).__name__, "values": {name: vars(callback)[name] for name in names}}


def _try_pack(value: Any) -> bytes | None:
    try:
        return pack(value)
    except TypeError:
        return None


def pack(value: Any) -> bytes:
    """None, booleans, numbers, text, arrays of numbers, and lists, tuples and dicts of them, as bytes.

    Raises:
        TypeError: something else is in it.
    """
    arrays: list[bytes] = []
    text = json.dumps(_encoded(value, arrays)).encode()
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *arrays])


def unpack(content: bytes) -> Any:
    """What `pack` was given."""
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    return _decoded(json.loads(content[_LENGTH:end]), content[end:])


def _encoded(value: Any, arrays: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind not in "OSUMm":
        begin = sum(map(len, arrays))
        arrays.append(value.tobytes())
        kind = tf.as_dtype(value.dtype).name
        return {"array": begin, "dtype": kind, "shape": value.shape, "scalar": isinstance(value, np.generic)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encoded(one, arrays) for one in value]}
    if type(value) is dict:
        return {"dict": [[_encoded(key, arrays), _encoded(one, arrays)] for key, one in value.items()]}
    raise TypeError(f"{type(value).__name__} has no place in a checkpoint")


def _decoded(value: Any, arrays: bytes) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        kind, shape = np.dtype(tf.as_dtype(value["dtype"]).as_numpy_dtype), value["shape"]
        found = np.frombuffer(arrays, kind, int(np.prod(shape)), value["array"]).reshape(shape).copy()
        return found[()] if value["scalar"] else found
    if "dict" in value:
        return {_decoded(key, arrays): _decoded(one, arrays) for key, one in value["dict"]}
    if "tuple" in value:
        return tuple(_decoded(one, arrays) for one in value["tuple"])
    return [_decoded(one, arrays) for one in value["list"]]
