"""`--on-nan=skip`: a step that is not finite on some replica leaves everything as it was before, a few times in a run.

Imports TensorFlow.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.checkpoint.finite_weights import all_finite
from dtj_trainer.config.nonfinite import LIMIT, on_which
from dtj_trainer.training import weight_update


class SkippedSteps:
    """Counts the steps of a run whose update was skipped."""

    count = 0

    @property
    def are_too_many(self) -> bool:
        """Whether the run must not go on."""
        return self.count > LIMIT

    def describe(self, step: int, skipped: int, workers: Sequence[str]) -> str:
        """The line for the steps that were counted last.

        Args:
            step: the first of them.
            skipped: how many they are.
            workers: the names of those with a value that is not finite.
        """
        later = skipped - 1
        more = f", and so {'is that' if later == 1 else 'are those'} of {later} of the next steps" if later else ""
        return (
            f"the loss or a gradient is not finite at step {step}{on_which(workers)}: its update is "
            f"skipped{more} ({self.count} of at most {LIMIT})"
        )


class Skipping:
    """Updates the weights of one model, unless the step is not finite on some replica."""

    def __init__(self, strategy: Any, model: Any, optimizer: Any, sums: Any) -> None:
        """Args:
        sums: tf.Variable; the metrics of the steps, which a forward pass adds to.
        """
        self._strategy = strategy
        self._model = model
        self._optimizer = optimizer
        self._sums = sums

    def remember(self) -> list[Any]:
        """What a forward pass changes by itself, as it is before that: the state of layers, and the sums."""
        return [tf.identity(variable) for variable in self._moved_by_forward()]

    def is_finite(self, loss: Any, gradients: Sequence[Any]) -> Any:
        """Whether all of a replica's loss is, and of its gradients, unless the optimizer scales the loss.

        Such an optimizer leaves an update out itself where gradients overflow, and lowers its scale.
        """
        checked = [] if weight_update.scales(self._optimizer) else [one for one in gradients if one is not None]
        return all_finite([loss, *checked])

    def apply_or_undo(self, gradients: Any, before: Any, bad: Any) -> Any:
        """Applies the gradients, or puts back what `remember` gave; returns 1 if the step is skipped, else 0.

        It is decided between the replicas' two halves, where all of them see the same.

        Args:
            bad: of each replica 1 if it is not finite there, else 0.
        """

        def apply(gradients: Any) -> None:
            self._optimizer.apply_gradients(zip(gradients, self._model.trainable_variables, strict=True))

        def undo(before: Any) -> None:
            for variable, value in zip(self._moved_by_forward(), before, strict=True):
                variable.assign(value)

        def applied() -> Any:
            self._strategy.run(apply, args=(gradients,))
            return tf.constant(0, tf.int64)

        def undone() -> Any:
            self._strategy.run(undo, args=(before,))
            return tf.constant(1, tf.int64)

        return tf.cond(self._strategy.reduce("SUM", bad, axis=None) > 0, undone, applied)

    def _moved_by_forward(self) -> list[Any]:
        return [*two_kerases.variables(self._model.non_trainable_variables), self._sums]
