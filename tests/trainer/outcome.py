"""Reads what a run left behind, with TensorFlow's own readers."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import Job


def tensors(checkpoint: Path) -> dict[str, bytes]:
    """Every tensor of a checkpoint but the count of saves, to the bit."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        key: reader.get_tensor(key).tobytes()
        for key in reader.get_variable_to_shape_map()
        if key.endswith("VARIABLE_VALUE") and not key.startswith("save_counter")
    }


def curves(directory: Path) -> Mapping[str, list[int]]:
    """Name of each scalar curve in TensorBoard's files -> its steps."""
    return {name: list(values) for name, values in points(directory).items()}


def points(directory: Path) -> Mapping[str, Mapping[int, float]]:
    """Name of each scalar curve in TensorBoard's files -> step -> value; of a step written twice, the later one."""
    import tensorflow as tf

    found: dict[str, dict[int, float]] = {}
    for file in sorted(directory.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def assert_training_curves(job: Job, last: Mapping[str, float]) -> None:
    """The job of three epochs, each with a validation and one call, shows all of these metrics of Keras' last epoch.

    Values are those of a call. On a machine so busy that an epoch takes longer than a call may, the last call is a part
    of it.
    """
    found = points(job.folder / "logs" / "train")
    assert set(last) <= set(found)
    *_, before, end = found["loss"]
    for name, value in last.items() if before <= end * 2 // 3 else ():
        assert found[name][end] == pytest.approx(value, abs=1e-5), name


def largest_difference(one: Any, other: Any, where: str = "") -> tuple[float, str]:
    """Of any two numbers in structures of JSON's, and its place."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        return max(largest_difference(value, other[name], f"{where}/{name}") for name, value in one.items())
    if isinstance(one, list):
        assert len(one) == len(other), where
        pairs = enumerate(zip(one, other, strict=True))
        return max((largest_difference(*pair, f"{where}/{place}") for place, pair in pairs), default=(0.0, where))
    difference = 0.0 if one == other else float(abs(one - other))
    return (math.inf if math.isnan(difference) else difference), where


def cut(path: Path) -> None:
    """Takes the second half of a file away, as a full disk would."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path) -> None:
    """Flips one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
