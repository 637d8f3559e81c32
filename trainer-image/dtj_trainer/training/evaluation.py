"""How good a model is on data that it was not trained on: by one process, or by all workers together.

Imports TensorFlow.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.data.held_out_examples import HeldOut, Reading
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.distribution.replica_count import one_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.training.objective import CompiledObjective
from dtj_trainer.training.stepping import steps_within

_BATCH = 512
"""Examples that a model takes at once; fewer if the devices of the training took fewer."""
_MAX_ROUNDS = 512
"""Of all workers, without an agreement."""


class EvaluationStep:
    """What a batch of held-out examples adds to sums, and the metrics that follow from them."""

    def __init__(self, model: Any, objective: CompiledObjective) -> None:
        """Args:
        objective: of the training, or one of whole batches.
        """
        self._objective = objective
        self._own = objective.test_step
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

    def joined(self, one: Any, other: Any) -> Any:
        """The sums of two batches, or of several, as one."""
        return (self._own or self._objective).joined(one, other)

    def means(self, sums: Any) -> dict[str, float]:
        """The metrics by name, of sums over any number of batches."""
        return dict((self._own or self._objective).means(sums))


class Evaluation:
    """Judges one model, as often as its weights have changed."""

    def __init__(self, factory: ModelFactory, model: Any, validation_data: HeldOut, *, batch: int) -> None:
        """Args:
        batch: examples that a device of the training takes at once.
        """
        self._validation_data = validation_data
        self._batch = min(batch, _BATCH)
        self._evaluate: Callable[[Iterable[Any]], dict[str, float]]
        if two_kerases.is_of_tf_keras(model):
            self._evaluate = factory.keras_evaluation(model).evaluate
        else:
            objective = factory.objective(model, validation_data.data, batch=None)
            self._evaluate = _by_sums(EvaluationStep(model, objective))

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
    return lambda batches: step.means(
        reduce(step.joined, (sums(examples).numpy().astype("float64") for examples in batches), np.zeros(step.size))
    )


class Validator:
    """Evaluates the model that workers train, as often as its weights have changed. All have to call it together.

    Each replica takes whole batches, in turn, and adds up what they give. So every batch is computed as on one device,
    no replica waits for another within a batch, and the sums of any number of workers are the same: Keras' numbers for
    batches of this size. Between batches the workers agree on whether one of them was asked to stop.
    """

    def __init__(
        self,
        strategy: Any,
        model: Any,
        objective: CompiledObjective,
        validation_data: HeldOut,
        *,
        batch: int,
        agree_on_data: Callable[[bool], None],
    ) -> None:
        """Args:
        strategy: that the model is trained under.
        objective: of the training.
        batch: the global one of the training.
        agree_on_data: whether the examples have changed on this worker; raises on all if they have on one.
        """
        self._strategy = strategy
        self._model = model
        self._step = EvaluationStep(model, objective)
        self._validation_data = validation_data
        self._agree_on_data = agree_on_data
        self._batch = min(batch, _BATCH)
        self._replicas = strategy.num_replicas_in_sync
        self._own: list[int] = []
        strategy.experimental_distribute_values_from_function(self._note_replica)
        self._rounds = -(-validation_data.data.validation_examples // (self._batch * self._replicas))
        self._filler: Any = None
        self._moved: list[Any] | None = None

        def replica(examples: Any, counts: Any) -> Any:
            with one_replica():
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
                    sums = self._step.joined(sums, self._round(batches))
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
                "device; give a smaller --batch-size",
                restart_may_help=True,
            ) from None
        # Each replica has places of its own.
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
            watched = two_kerases.variables(self._model.non_trainable_variables)
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


def for_result(score: Mapping[str, float]) -> dict[str, float]:
    """The names that TensorBoard shows them under, apart from those of the training."""
    return {f"held_out/{name}": value for name, value in score.items()}


def format_metrics(score: Mapping[str, float]) -> str:
    """`accuracy 0.9916  loss 0.0312`: the loss last, since it says the least."""
    names = sorted(score, key=lambda name: name == "loss")
    return "  ".join(f"{name.replace('_', ' ')} {score[name]:.4f}" for name in names)
