"""The step loop of the synchronous strategies: one TensorFlow call for several steps and one agreement.

At the end of each call one small all-reduce carries the metrics of its steps, and with them what the tasks have
to agree on: whether one received a signal to stop, whether the leader wants a checkpoint, and how many steps come next.
So all tasks save and leave at the same step without a word on another channel. Between these ends no loss is
reduced. Imports TensorFlow.
"""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.autograph import rewritten
from dtj_trainer.checkpoint.finite_weights import FiniteWeights, NotFiniteState
from dtj_trainer.compat import keras3
from dtj_trainer.distribution import collective_timing
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.distribution.replica_count import one_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.random_layers import RngState
from dtj_trainer.training.controller import StepResult
from dtj_trainer.training.layers import counting
from dtj_trainer.training.metric_values import Measured
from dtj_trainer.training.objective import CompiledObjective
from dtj_trainer.training.replica_draws import ReplicaDraws
from dtj_trainer.training.skipped_steps import Skipping


class SynchronousLoop:
    """Runs steps of one model under one strategy."""

    def __init__(
        self,
        *,
        strategy: Any,
        objective: CompiledObjective,
        model: Any,
        optimizer: Any,
        step: Any,
        max_steps: int,
        skips: bool = False,
        often_saved: bool = False,
    ) -> None:
        """Args:
        step: int64 tf.Variable, made under the strategy; counts the steps done.
        max_steps: that one call may take.
        skips: whether steps that are not finite are skipped: see `skipped_steps`.
        often_saved: see `FiniteWeights`.
        """
        self._strategy = strategy
        self._objective = objective
        self._model = model
        self._optimizer = optimizer
        self._step = step
        # Of ours, AutoGraph rewrites only the model that it calls.
        self._forward = rewritten(model)
        self._training = keras3.call_arguments(model, training=True)
        self._run = tf.function(self._train_steps, autograph=False, reduce_retracing=True)
        self._weights = FiniteWeights(
            two_kerases.variables(model.trainable_variables),
            two_kerases.variables(model.non_trainable_weights),
            two_kerases.state(optimizer),
            often=often_saved,
        )
        self._max_steps = max_steps
        self._place: Any = None
        self._local_replicas = len(strategy.extended.worker_devices)
        # CentralStorage has one copy of every variable, so its sums are over the replicas as they stand.
        self._sums_are_shared = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)
        self._waiting = collective_timing.of(strategy)
        # Batches that the data gave: of several workers, the one that has fewer is late.
        with tf.device("CPU:0"):
            self._batches = tf.Variable(0, dtype=tf.int64, trainable=False)
        with strategy.scope():
            self._rng_state, self._draws = RngState(model), ReplicaDraws()
            self._sums = _summed_when_read(self._objective.size)
            self._skipping = Skipping(strategy, model, optimizer, self._sums) if skips else None
            # The loss of each step of a call, so that a step does nothing but write it down. It costs less than to
            # ask each time whether it is finite: see bench/trainer/loop.py.
            sharing = strategy.num_replicas_in_sync if self._sums_are_shared else 1
            self._losses_by_step = _summed_when_read(sharing * max_steps)

    @property
    def first_steps(self) -> int:
        """See `InnerLoop`. The first call traces: the sooner it ends, the sooner it is seen that the job trains."""
        return 1

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """See `InnerLoop`."""
        arguments = iterator, tf.constant(steps, tf.int64), tf.constant(vote().vector())
        try:
            reduced, skipped, waited = self._run(*arguments)
        except ValueError as error:
            if not self._sums_are_shared or "must specify an aggregation method" not in str(error):
                raise
            raise UsageError(
                "strategy CentralStorage: the optimizer, a constraint or a layer sets a variable within the step, as "
                "Nadam, an accumulation of gradients and loss scaling do, and TensorFlow lets no replica set it there; "
                "use another optimizer, or strategy Mirrored"
            ) from None
        self._objective.look_again(self._step)
        reduced = reduced.numpy()
        replicas = self._strategy.num_replicas_in_sync
        sums, first = reduced[: -replicas - 3], reduced[-replicas:]
        stop, save, next_steps = (float(value) for value in reduced[-replicas - 3 : -replicas])
        found = [round(float(value)) for value in first]
        at = min((number for number in found if number), default=None)
        return StepResult(
            metrics=Measured(sums, self._objective.means, self._objective.joined),
            steps=steps,
            stop=stop > 0,
            save=save > 0,
            next_steps=round(next_steps),
            not_finite_step=at,
            not_finite_replicas=[replica for replica, number in enumerate(found) if number and number == at],
            skipped=int(skipped),
            waited=None if self._waiting is None else float(waited),
        )

    @property
    def batches(self) -> int:
        """How many batches this task's data gave so far, if others wait for it. Can be read while a call is under way.

        Where nobody does, the number may be on a host that does not answer.
        """
        return 0 if self._waiting is None else int(self._batches.numpy())

    @property
    def waits_for_others(self) -> bool:
        """Whether this task waits for the others outside of a call."""
        return self._waiting is not None and self._waiting.in_eager_sum

    def _count(self, examples: Any) -> None:
        if self._waiting is None:
            return
        parts = tf.nest.flatten(examples)
        tensors = [each for part in parts for each in self._strategy.experimental_local_results(part)]
        with tf.control_dependencies(tf.nest.flatten(tensors, expand_composites=True)):
            self._batches.assign_add(1)

    def find_not_finite(self) -> NotFiniteState | None:
        """See `InnerLoop`."""
        return self._weights.find_not_finite()

    def _train_steps(self, iterator: Any, steps: Any, vote: Any) -> tuple[Any, Any, Any]:
        def step(taken: Any, skipped: Any) -> tuple[Any, Any]:
            examples = next(iterator)
            self._count(examples)
            if self._skipping:
                return taken + 1, skipped + self._step_or_skip(self._skipping, examples, taken)
            self._strategy.run(self._replica_step, args=(examples, taken))
            return taken + 1, skipped

        zero = tf.constant(0, tf.int64)
        _, skipped = tf.while_loop(lambda taken, _: taken < steps, step, (zero, zero))
        self._step.assign_add(steps)
        if self._sums_are_shared:
            return self._collect_and_reset(vote), skipped, tf.constant(0.0)
        shares = self._strategy.run(self._collect_and_reset, args=(vote / self._local_replicas,))
        reduced = self._strategy.reduce("SUM", shares, axis=None)
        return reduced, skipped, tf.constant(0.0) if self._waiting is None else self._waiting.seconds

    def _replica_step(self, examples: tuple[Any, Any], taken: Any) -> None:
        self._begin_step(taken)
        _, gradients = self._gradients(examples)
        self._optimizer.apply_gradients(zip(gradients, self._model.trainable_variables, strict=True))

    def _step_or_skip(self, skipping: Skipping, examples: Any, taken: Any) -> Any:
        """One step; returns 1 if it is skipped, else 0."""

        def learn(examples: tuple[Any, Any]) -> tuple[Any, Any, Any]:
            self._begin_step(taken)
            before = skipping.remember()
            loss, gradients = self._gradients(examples)
            finite = skipping.is_finite(loss, gradients)
            self._note(tf.where(finite, 0.0, math.nan))
            return gradients, before, tf.cast(tf.logical_not(finite), tf.float32)

        return skipping.apply_or_undo(*self._strategy.run(learn, args=(examples,)))

    def _begin_step(self, taken: Any) -> None:
        """Puts what depends on the step where this one of the call begins."""
        self._place = taken
        if self._sums_are_shared:
            self._place += tf.cast(_replica(), tf.int64) * self._max_steps
        self._rng_state.fold_in(self._step + taken)

    def _note(self, loss: Any) -> None:
        """Adds to the loss of this step on this replica; what is not finite stays so."""
        places = tf.range(self._losses_by_step.shape[0], dtype=tf.int64)
        self._losses_by_step.assign_add(tf.where(tf.equal(places, self._place), tf.cast(loss, tf.float32), 0.0))

    def _gradients(self, examples: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        """What one replica's share of a batch adds to the global mean, and the gradient of each trainable weight.

        Notes loss and metrics on the way. The optimizer sums the gradients over the replicas, and so divides nothing.
        """
        inputs, labels, *weights = examples
        with one_replica(), self._draws.differing(), tf.GradientTape() as tape:
            with counting(None):
                outputs = self._forward(inputs, **self._training)
            loss, sums = self._objective.loss(outputs, labels, weights[0] if weights else None, inputs)
            self._objective.add_to(self._sums, sums)
            if not self._skipping:
                self._note(loss)
            scaled = self._optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, self._model.trainable_variables)

    def _collect_and_reset(self, vote: Any) -> Any:
        """A replica's sums, its share of the task's wishes, and where it was not finite; the sums start from zero."""
        sums, losses = tf.identity(self._sums), tf.identity(self._losses_by_step)
        with tf.control_dependencies([sums, losses]):
            self._sums.assign(tf.zeros_like(sums))
            self._losses_by_step.assign(tf.zeros_like(losses))
        first = _first_not_finite(tf.reshape(losses, [-1, self._max_steps]))
        if not self._sums_are_shared:
            first *= tf.one_hot(_replica(), self._strategy.num_replicas_in_sync)
        return tf.concat([sums, vote, first], axis=0)


def _replica() -> Any:
    """The number of the replica that this is traced for."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def _first_not_finite(losses: Any) -> Any:
    """Of each row the first place of what is not finite, counted from 1; 0 where all is. float32."""
    finite = tf.math.is_finite(losses)
    first = tf.argmin(tf.cast(finite, tf.int32), axis=1, output_type=tf.int32) + 1
    return tf.cast(tf.where(tf.reduce_all(finite, axis=1), 0, first), tf.float32)


def _summed_when_read(size: int) -> Any:
    """A variable of float32, shape (size,), that each replica adds to; it is summed over the replicas when read."""
    return tf.Variable(
        tf.zeros(size),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
