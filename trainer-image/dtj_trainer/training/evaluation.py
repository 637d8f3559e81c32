"""How good a model is on data that it was not trained on. Imports TensorFlow."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.data.held_out_examples import HeldOut
from dtj_trainer.tasks import LearningTask
from dtj_trainer.tasks.aggregation import ByExample, Objective

BATCH = 512
"""Examples that a model takes at once; fewer if the devices of the training took fewer."""


class EvaluationStep:
    """What a batch of held-out examples adds to sums, and the metrics that follow from them."""

    def __init__(self, model: Any, objective: Objective) -> None:
        """Args:
        objective: of the training, or one of whole batches.
        """
        self._objective = objective
        self._own = getattr(objective, "test_step", None)
        self._training = keras3.call_arguments(model, training=False)
        self._forward = rewritten(model)
        self.size: int = (self._own or objective).size

    def sums(self, examples: Any) -> Any:
        """Of a whole batch: float32, [size]. A graph of it is to be made within the objective's `by_batch`."""
        if self._own:
            return self._own.sums(examples)
        inputs, labels, *weights = examples
        outputs = self._forward(inputs, **self._training)
        return self._objective.loss(outputs, labels, weights[0] if weights else None, inputs)[1]

    def means(self, sums: Any) -> dict[str, float]:
        """The metrics by name, of sums over any number of batches."""
        return dict((self._own or self._objective).means(sums))


class Evaluation:
    """Judges one model, as often as its weights have changed."""

    def __init__(self, task: LearningTask, model: Any, validation_data: HeldOut, *, batch: int = BATCH) -> None:
        """Args:
        batch: examples that the model takes at once.
        """
        self._validation_data = validation_data
        self._batch = batch
        own = getattr(task, "objective", None)
        objective = ByExample(task, model, batch=None) if own is None else own(model, validation_data.data, batch=None)
        self._evaluate = getattr(objective, "evaluate", None) or _by_sums(EvaluationStep(model, objective))

    def __call__(self, *, batch_done: Callable[[], object] = lambda: None) -> dict[str, float]:
        """Judges every held-out example once, in batches, on this process's own devices.

        Args:
            batch_done: called after each batch.

        Raises:
            DataChanged: they are not those of the first reading.
        """
        batches = self._validation_data.reading(batch=self._batch)

        def each() -> Iterator[Any]:
            for examples in batches:
                yield examples
                batch_done()

        score = self._evaluate(each())
        if self._validation_data.has_changed(batches.finish()):
            raise self._validation_data.changed()
        return score


def _by_sums(step: EvaluationStep) -> Callable[[Iterable[Any]], dict[str, float]]:
    sums = tf.function(step.sums, reduce_retracing=True, autograph=False)
    return lambda batches: step.means(sum(sums(examples).numpy().astype("float64") for examples in batches))


def evaluate(task: LearningTask, model: Any, validation_data: HeldOut, *, batch: int = BATCH) -> dict[str, float]:
    """Judges every held-out example once; see `Evaluation`."""
    return Evaluation(task, model, validation_data, batch=batch)()


def for_result(score: Mapping[str, float]) -> dict[str, float]:
    """The names that TensorBoard shows them under, apart from those of the training."""
    return {f"held_out/{name}": value for name, value in score.items()}


def format_metrics(score: Mapping[str, float]) -> str:
    """`accuracy 0.9916  loss 0.0312`: the loss last, since it says the least."""
    names = sorted(score, key=lambda name: name == "loss")
    return "  ".join(f"{name.replace('_', ' ')} {score[name]:.4f}" for name in names)
