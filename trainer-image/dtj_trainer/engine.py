"""The step loop of the synchronous strategies: one TensorFlow call for several steps and one agreement.

At the end of each call one small all-reduce carries the metrics of its steps, and with them what the tasks have
to agree on: whether one was told to stop, whether the leader wants a checkpoint, and how many steps come next.
So all tasks save and leave at the same step without a word on another channel. Between these ends no loss is
reduced. Imports TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What one task brings to the agreement. Save and next_steps count from the leader alone."""

    stop: bool
    save: bool
    next_steps: int

    def vector(self) -> list[float]:
        """As it travels."""
        return [float(self.stop), float(self.save), float(self.next_steps)]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One call, the same on all tasks: means over all its examples, and what was agreed."""

    metrics: Mapping[str, float]
    stop: bool
    save: bool
    next_steps: int


class Engine:
    """Runs steps of one model under one strategy."""

    def __init__(self, *, strategy: Any, task: Task, model: Any, optimizer: Any, step: Any, batch: int) -> None:
        """Args:
        step: int64 tf.Variable, made under the strategy; counts the steps done.
        batch: global batch size.
        """
        self._strategy = strategy
        self._task = task
        self._model = model
        self._optimizer = optimizer
        self._step = step
        self._batch = batch
        self._local_replicas = len(strategy.extended.worker_devices)
        with strategy.scope():
            # Summed on each replica as it goes, over the replicas only when it is read.
            self._sums = tf.Variable(
                tf.zeros(len(task.metrics)),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def run(self, iterator: Any, steps: int, wishes: Wishes) -> Outcome:
        """Takes so many steps. All tasks must ask for the same number."""
        reduced = self._run(iterator, tf.constant(steps, tf.int64), tf.constant(wishes.vector())).numpy()
        examples = steps * self._batch
        sums, (stop, save, next_steps) = reduced[:-3], (float(value) for value in reduced[-3:])
        return Outcome(
            metrics={name: float(value) / examples for name, value in zip(self._task.metrics, sums, strict=True)},
            stop=stop > 0,
            save=save > 0,
            next_steps=round(next_steps),
        )

    @tf.function(reduce_retracing=True)
    def _run(self, iterator: Any, steps: Any, wishes: Any) -> Any:
        for _ in tf.range(steps):
            self._strategy.run(self._learn, args=(next(iterator),))
        self._step.assign_add(steps)
        return self._strategy.reduce("SUM", self._strategy.run(self._report, args=(wishes,)), axis=None)

    def _learn(self, examples: tuple[Any, Any]) -> None:
        inputs, labels = examples
        with tf.GradientTape() as tape:
            judged = self._task.judge(self._model(inputs, training=True), labels)
            # Each replica's share of the global mean: the optimizer sums the gradients over the replicas.
            loss = tf.reduce_sum(judged["loss"]) / self._batch
        weights = self._model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self._sums.assign_add(tf.stack([tf.reduce_sum(judged[name]) for name in self._task.metrics]))

    def _report(self, wishes: Any) -> Any:
        """Hands over this replica's sums and starts them anew; the replicas of a task share its wishes."""
        sums = tf.identity(self._sums)
        with tf.control_dependencies([sums]):
            self._sums.assign(tf.zeros_like(sums))
        return tf.concat([sums, wishes / self._local_replicas], axis=0)
