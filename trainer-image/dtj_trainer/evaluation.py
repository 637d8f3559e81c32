"""How good a model is on data that it was not trained on. Imports TensorFlow."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import Task

_BATCH = 512


def evaluate(task: Task, model: Any, data: Source) -> dict[str, float]:
    """Judges every held-out example once, in batches, on this process's own devices; the mean of each metric."""

    @tf.function(reduce_retracing=True)
    def judge(inputs: Any, labels: Any) -> Any:
        judged = task.judge(model(inputs, training=False), labels)
        return tf.stack([tf.reduce_sum(judged[name]) for name in task.metrics])

    sums = sum(judge(inputs, labels).numpy().astype("float64") for inputs, labels in data.held_out(batch=_BATCH))
    return {name: float(value) / data.held_out_examples for name, value in zip(task.metrics, sums, strict=True)}


def held_out(score: Mapping[str, float]) -> dict[str, float]:
    """The names that TensorBoard shows them under, apart from those of the training."""
    return {f"held_out/{name}": value for name, value in score.items()}


def told(score: Mapping[str, float]) -> str:
    """`accuracy 0.9916  loss 0.0312`: the loss last, since it says the least."""
    names = sorted(score, key=lambda name: name == "loss")
    return "  ".join(f"{name.replace('_', ' ')} {score[name]:.4f}" for name in names)
