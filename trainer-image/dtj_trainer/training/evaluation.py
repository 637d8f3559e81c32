"""How good a model is on data that it was not trained on. Imports TensorFlow."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.data.source import Source
from dtj_trainer.tasks import Task
from dtj_trainer.tasks.aggregation import ByExample, Objective

BATCH = 512
"""Examples that a model takes at once; fewer if the devices of the training took fewer."""


class Evaluation:
    """Judges one model, as often as its weights have changed."""

    def __init__(self, task: Task, model: Any, data: Source, *, batch: int = BATCH) -> None:
        """Args:
        batch: examples that the model takes at once.
        """
        self._data = data
        self._batch = batch
        own = getattr(task, "objective", None)
        self._objective: Objective = ByExample(task, model, batch=None) if own is None else own(model, data, batch=None)
        training = keras3.call_arguments(model, training=False)
        forward = rewritten(model)

        @tf.function(reduce_retracing=True, autograph=False)
        def compute_metrics(inputs: Any, labels: Any, weights: Any = None) -> Any:
            _, sums = self._objective.loss(forward(inputs, **training), labels, weights, inputs)
            return sums

        self._compute_metrics = compute_metrics

    def __call__(self) -> dict[str, float]:
        """Judges every held-out example once, in batches, on this process's own devices."""
        batches = self._data.validation(batch=self._batch)
        sums = sum(self._compute_metrics(*examples).numpy().astype("float64") for examples in batches)
        return dict(self._objective.means(sums))


def evaluate(task: Task, model: Any, data: Source, *, batch: int = BATCH) -> dict[str, float]:
    """Judges every held-out example once; see `Evaluation`."""
    return Evaluation(task, model, data, batch=batch)()


def for_result(score: Mapping[str, float]) -> dict[str, float]:
    """The names that TensorBoard shows them under, apart from those of the training."""
    return {f"held_out/{name}": value for name, value in score.items()}


def format_metrics(score: Mapping[str, float]) -> str:
    """`accuracy 0.9916  loss 0.0312`: the loss last, since it says the least."""
    names = sorted(score, key=lambda name: name == "loss")
    return "  ".join(f"{name.replace('_', ' ')} {score[name]:.4f}" for name in names)
