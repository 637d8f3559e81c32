"""Reads what a run left behind, with TensorFlow's own readers."""

from collections.abc import Mapping
from pathlib import Path


def tensors(checkpoint: Path) -> dict[str, bytes]:
    """Every tensor of a checkpoint but the count of saves and the rate, which `fit` alone remembers, to the bit."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        key: reader.get_tensor(key).tobytes()
        for key in reader.get_variable_to_shape_map()
        if key.endswith("VARIABLE_VALUE") and not key.startswith(("save_counter", "rate/"))
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


def cut(path: Path) -> None:
    """Takes the second half of a file away, as a full disk would."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
