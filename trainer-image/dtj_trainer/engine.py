"""The step loop of the synchronous strategies: one TensorFlow call for several steps and one agreement.

At the end of each call one small all-reduce carries the metrics of its steps, and with them what the tasks have
to agree on: whether one was told to stop, whether the leader wants a checkpoint, and how many steps come next.
So all tasks save and leave at the same step without a word on another channel. Between these ends no loss is
reduced. Imports TensorFlow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer import waiting
from dtj_trainer.draws import Draws
from dtj_trainer.rewriting import rewritten
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
    """One call: means over all its examples and what was agreed, the same on all tasks."""

    metrics: Mapping[str, float]
    stop: bool
    save: bool
    next_steps: int
    waited: float | None
    """Seconds in all so far that this task waited for others, which is its own; None where there are no others."""


class Engine:
    """Runs steps of one model under one strategy."""

    def __init__(
        self,
        *,
        strategy: Any,
        task: Task,
        model: Any,
        optimizer: Any,
        step: Any,
        batch: int,
        train_step: Callable[[Any], object] | None = None,
    ) -> None:
        """Args:
        step: int64 tf.Variable, made under the strategy; counts the steps done.
        batch: global batch size.
        train_step: learns from one replica's share of a batch, in place of this engine's own step. It has to take
            its loss from `loss`.
        """
        self._strategy = strategy
        self._task = task
        self._model = model
        self._optimizer = optimizer
        self._step = step
        self._batch = batch
        self._train_step = train_step or self._learn
        self._forward = rewritten(model)
        # A train step of the user's is rewritten with all that calls it; of ours, only the model that it calls.
        self._run = tf.function(self._take, autograph=train_step is not None, reduce_retracing=True)
        self._local_replicas = len(strategy.extended.worker_devices)
        # CentralStorage has one copy of every variable, so its sums are over the replicas as they stand.
        self._sums_are_shared = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)
        self._waiting = waiting.of(strategy)
        with strategy.scope():
            self._draws = Draws(model)
            # Summed on each replica as it goes, over the replicas only when it is read.
            self._sums = tf.Variable(
                tf.zeros(len(task.metrics)),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def run(self, iterator: Any, steps: int, wishes: Wishes) -> Outcome:
        """Takes so many steps. All tasks must ask for the same number."""
        reduced, waited = self._run(iterator, tf.constant(steps, tf.int64), tf.constant(wishes.vector()))
        reduced = reduced.numpy()
        examples = steps * self._batch
        sums, (stop, save, next_steps) = reduced[:-3], (float(value) for value in reduced[-3:])
        return Outcome(
            metrics={name: float(value) / examples for name, value in zip(self._task.metrics, sums, strict=True)},
            stop=stop > 0,
            save=save > 0,
            next_steps=round(next_steps),
            waited=None if self._waiting is None else float(waited),
        )

    def _take(self, iterator: Any, steps: Any, wishes: Any) -> tuple[Any, Any]:
        def step(taken: Any) -> tuple[Any]:
            self._strategy.run(self._take_one, args=(next(iterator), self._step + taken))
            return (taken + 1,)

        tf.while_loop(lambda taken: taken < steps, step, (tf.constant(0, tf.int64),))
        self._step.assign_add(steps)
        if self._sums_are_shared:
            return self._hand_over(wishes), tf.constant(0.0)
        shares = self._strategy.run(self._hand_over, args=(wishes / self._local_replicas,))
        reduced = self._strategy.reduce("SUM", shares, axis=None)
        return reduced, tf.constant(0.0) if self._waiting is None else self._waiting.seconds

    def _take_one(self, examples: tuple[Any, Any], step: Any) -> None:
        self._draws.place(step)
        self._train_step(examples)

    def loss(self, outputs: Any, labels: Any) -> Any:
        """What one replica's share of a batch adds to the global mean, penalties of the layers included.

        Notes the metrics on the way. The optimizer sums the gradients over the replicas, and so divides nothing:
        a replica with one example less than another weighs less.
        """
        judged = self._task.judge(outputs, labels)
        self._sums.assign_add(tf.stack([tf.reduce_sum(judged[name]) for name in self._task.metrics]))
        loss = tf.reduce_sum(judged["loss"]) / self._batch
        penalties = self._model.losses
        return loss + tf.add_n(penalties) / self._strategy.num_replicas_in_sync if penalties else loss

    def _learn(self, examples: tuple[Any, Any]) -> None:
        inputs, labels = examples
        with tf.GradientTape() as tape:
            loss = self.loss(self._forward(inputs, training=True), labels)
        weights = self._model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    def _hand_over(self, wishes: Any) -> Any:
        """A replica's sums, which begin anew, and its share of the task's wishes."""
        sums = tf.identity(self._sums)
        with tf.control_dependencies([sums]):
            self._sums.assign(tf.zeros_like(sums))
        return tf.concat([sums, wishes], axis=0)
