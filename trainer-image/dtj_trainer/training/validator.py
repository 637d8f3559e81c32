"""Evaluates the held-out examples on the workers, with the model that they train. Imports TensorFlow.

Each replica takes whole batches, in turn, and adds up what they give. So every batch is computed as on one device, no
replica waits for another within a batch, and the sums of any number of workers are the same: Keras' numbers for batches
of this size. Between batches the workers agree on whether one of them was asked to stop.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer import keras_compat
from dtj_trainer.data.held_out_examples import HeldOut, Reading
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.tasks.aggregation import Objective
from dtj_trainer.training.evaluation import EvaluationStep
from dtj_trainer.training.stepping import steps_within

BATCH = 512
"""Examples that a replica takes at once, at most, unless the user says how many."""
_MAX_ROUNDS = 512
"""Without an agreement."""


class Validator:
    """Evaluates one model, as often as its weights have changed. All workers have to call it together."""

    def __init__(
        self,
        strategy: Any,
        model: Any,
        objective: Objective,
        validation_data: HeldOut,
        *,
        batch: int,
        agree_on_data: Callable[[bool], None],
    ) -> None:
        """Args:
        strategy: that the model is trained under.
        objective: of the training.
        batch: examples that a replica takes at once.
        agree_on_data: whether the examples have changed on this worker; raises on all if they have on one.
        """
        self._strategy = strategy
        self._model = model
        self._step = EvaluationStep(model, objective)
        self._validation_data = validation_data
        self._agree_on_data = agree_on_data
        self._batch = batch
        self._replicas = strategy.num_replicas_in_sync
        self._own: list[int] = []
        strategy.experimental_distribute_values_from_function(self._note_replica)
        self._rounds = -(-validation_data.data.validation_examples // (batch * self._replicas))
        self._filler: Any = None
        self._moved: list[Any] | None = None

        def replica(examples: Any, counts: Any) -> Any:
            sums = self._step.sums(examples)
            return tf.where(counts, sums, tf.zeros_like(sums))

        @tf.function(reduce_retracing=True, autograph=False)
        def evaluate(examples: Any, counts: Any) -> Any:
            with objective.by_batch():
                return strategy.run(replica, args=(examples, counts))

        self._evaluate = evaluate

    def _note_replica(self, context: Any) -> Any:
        self._own.append(context.replica_id_in_sync_group)
        return tf.constant(0)

    def names(self) -> list[str]:
        """Of the metrics that it gives."""
        return list(self._step.means(np.ones(self._step.size)))

    def __call__(self, stops: Callable[[], bool], alive: Callable[[], object]) -> Mapping[str, float] | None:
        """Evaluates every held-out example once.

        Args:
            stops: whether this task was asked to stop.
            alive: called between batches.

        Returns:
            The metrics by name, the same on all workers to the bit; None if a task was asked to stop.

        Raises:
            UsageError: a batch does not fit into the memory of a device.
            DataChanged: the examples are not those of the first reading, on any worker.
        """
        sums = np.zeros(self._step.size)
        batches, ahead, done = self._reading(), 1, 0
        with self._without_a_trace():
            while done < self._rounds:
                began = time.monotonic()
                for _ in range(min(ahead, self._rounds - done)):
                    sums += self._round(batches)
                    done += 1
                alive()
                stop, ahead = self._agree(stops(), steps_within(_MAX_ROUNDS, ahead / (time.monotonic() - began)))
                if stop:
                    return None
        self._agree_on_data(self._validation_data.has_changed(batches.finish()))
        return self._step.means(self._summed(sums))

    def _round(self, batches: Iterator[Any]) -> Any:
        """One batch on each replica; what the batches of this worker add to the sums."""
        examples = {replica: next(batches, None) for replica in self._own}

        def given(context: Any) -> Any:
            here = examples[context.replica_id_in_sync_group]
            return self._fill() if here is None else here

        def counts(context: Any) -> Any:
            return tf.constant(examples[context.replica_id_in_sync_group] is not None)

        distribute = self._strategy.experimental_distribute_values_from_function
        try:
            found = self._evaluate(distribute(given), distribute(counts))
            parts = [part.numpy() for part in self._strategy.experimental_local_results(found)]
        except tf.errors.ResourceExhaustedError:
            raise UsageError(
                f"--validate-every: a batch of {self._batch} held-out examples does not fit into the memory of a "
                "device; give a smaller --batch-size"
            ) from None
        return sum(part.astype(np.float64) for part in parts)

    def _reading(self) -> Reading:
        """The batches of this worker's replicas: each replica has one of every few."""
        first, last, replicas = self._own[0], self._own[-1], self._replicas
        if len(self._own) == replicas:
            return self._validation_data.reading(batch=self._batch)
        return self._validation_data.reading(
            batch=self._batch, takes=lambda number: (number % replicas >= first) & (number % replicas <= last)
        )

    def _fill(self) -> Any:
        """For a replica that has no batch left; it counts for nothing."""
        if self._filler is None:
            self._filler = next(iter(self._validation_data.data.validation(batch=1)))
        return self._filler

    @contextmanager
    def _without_a_trace(self) -> Iterator[None]:
        """What a layer counts when it is called, is afterwards as it was: the training is the same without this."""
        watched = self._moved
        if watched is None:
            watched = keras_compat.variables(self._model.non_trainable_variables)
        before = [tf.identity(tf.convert_to_tensor(variable)) for variable in watched]
        try:
            yield
        finally:
            moved = [
                (variable, value)
                for variable, value in zip(watched, before, strict=True)
                if self._moved is not None or _bits(variable) != _bits(value)
            ]
            for variable, value in moved:
                variable.assign(value)
            self._moved = [variable for variable, _ in moved]

    def _agree(self, stop: bool, ahead: int) -> tuple[bool, int]:
        """Whether any worker stops, and how many rounds come next, as the first one says."""
        if len(self._own) == self._replicas:
            return stop, ahead
        votes = of_each_replica(self._strategy, stop * (_MAX_ROUNDS + 1) + ahead)
        return any(one > _MAX_ROUNDS for one in votes), votes[0] % (_MAX_ROUNDS + 1)

    def _summed(self, sums: Any) -> Any:
        """Over all workers."""
        if len(self._own) == self._replicas:
            return sums

        def once() -> Any:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(tf.equal(replica, self._own[0]), tf.constant(sums), tf.zeros(len(sums), tf.float64))

        return self._strategy.reduce("SUM", self._strategy.run(once), axis=None).numpy()


def _bits(value: Any) -> bytes:
    return bytes(tf.convert_to_tensor(value).numpy().tobytes())
