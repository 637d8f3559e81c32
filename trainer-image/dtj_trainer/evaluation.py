"""How good a model is on data that it was not trained on. Imports TensorFlow."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.datasets import Split
from dtj_trainer.tasks import Task

_BATCH = 512


@dataclass(frozen=True)
class Score:
    """Means over all examples of a split."""

    loss: float
    accuracy: float


def evaluate(task: Task, model: Any, data: Split) -> Score:
    """Judges every example once, in batches, on this process's own devices."""

    @tf.function(reduce_retracing=True)
    def judge(inputs: Any, labels: Any) -> Any:
        losses, hits = task.judge(model(inputs, training=False), labels)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits)])

    batches = tf.data.Dataset.from_tensor_slices((data.inputs, data.labels)).batch(_BATCH)
    sums = sum(judge(inputs, labels).numpy().astype("float64") for inputs, labels in batches)
    loss, accuracy = (float(value) / len(data) for value in sums)
    return Score(loss, accuracy)
