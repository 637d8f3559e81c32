"""What takes the steps of a strategy, and what it and the controller exchange. Imports TensorFlow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from dtj_trainer.checkpoint.finite_weights import NotFiniteState
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.training.metric_values import Measured


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One call: means over all its examples and what was agreed, the same on all tasks."""

    metrics: Measured
    """Empty if the call measured no example."""
    steps: int
    """Steps that were taken: as many as asked for, unless the workers take them at their own pace."""
    stop: bool
    save: bool
    next_steps: int | None
    """Steps of the next call; None: the controller decides by its own pace."""
    not_finite_step: int | None = None
    """Of the steps of this call, counted from 1, the first whose loss is not finite on some replica."""
    not_finite_is_exact: bool = True
    """Whether it is that step, and not one before it."""
    not_finite_replicas: Sequence[int] = ()
    """The replicas with such a loss in that step."""
    not_finite_workers: Sequence[str] = ()
    """The workers that had such a loss, where workers are no replicas of one another."""
    skipped: int = 0
    """Steps whose update was not applied; the means leave them out."""
    waited: float | None = None
    """Seconds in all so far that this task waited for others, which is its own; None if there are no others."""


class InnerLoop(Protocol):
    """Takes the steps of one model. The controller decides how many, and what happens between the calls."""

    @property
    def first_steps(self) -> int:
        """Steps of the first call, at most."""
        ...

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """Takes steps, and agrees with the other tasks on what comes next.

        If the result has `stop` or `save`, or this number of steps is reached, no step is under way any more. Workers
        that take steps at their own pace may then have taken a few more.

        Args:
            iterator: the batches.
            steps: at most; all tasks ask for the same number.
            vote: what this task wants now. A collective asks for it before its call, which carries the agreement; a
                coordinator, which decides alone, asks as late as it can.
        """
        ...

    def find_not_finite(self) -> NotFiniteState | None:
        """What of the weights and of the optimizer's state is not finite and must be; it is the same on all tasks."""
        ...


def new_counter() -> Any:
    """A number of steps as a checkpoint holds it: int64, 0; the replicas of a strategy count it together."""
    return tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
