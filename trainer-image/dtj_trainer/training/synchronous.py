"""The synchronous strategies: every task runs this, in step with the others. Imports TensorFlow."""

import logging
from dataclasses import replace
from typing import Any

import tensorflow as tf

from dtj_launch.progress import Phase
from dtj_trainer import random_layers, two_kerases
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.compared_replicas import ComparedReplicas
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.checkpoint.state import new_counter
from dtj_trainer.config.nonfinite import SKIP
from dtj_trainer.data.worker_shards import distributed
from dtj_trainer.distribution.agreement import (
    agree_on_data,
    ending_together,
    exit_barrier,
    of_each_replica,
)
from dtj_trainer.distribution.stall_watch import Watch, building, limit_seconds, step_watch
from dtj_trainer.distribution.strategies import peer_loss
from dtj_trainer.errors import DataChanged, PeerLost, UsageError
from dtj_trainer.process.ending import leave_report
from dtj_trainer.process.watchdog import Watchdog
from dtj_trainer.training import optimizers, weight_average, weight_update
from dtj_trainer.training.actions import Action, load_actions
from dtj_trainer.training.controller import Controller
from dtj_trainer.training.layers import batch_normalizations
from dtj_trainer.training.model import seed_alike
from dtj_trainer.training.outcome import finish
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.seen_examples import SeenExamples
from dtj_trainer.training.stepping import Course
from dtj_trainer.training.synchronous_step import SynchronousLoop
from dtj_trainer.training.validation import Validations

log = logging.getLogger(__name__)


def train(run: Run, strategy: Any) -> None:
    """Trains from the newest checkpoint, or from the start, to the last step; the leader then finishes the run.

    Raises:
        Preempted: asked to stop; all tasks have saved the same step.
        PeerLost: another task went away.
        NotFinite: the loss or the weights are not finite, and the training must not go on.
        ReplicasDiffer: replicas do not hold the same bits.
        UsageError: the batch or the checkpoint directory does not fit the job.
        DataChanged: the held-out examples are not those of the first reading.
    """
    run = _in_single_steps_if_ragged(run, strategy.num_replicas_in_sync)
    config = run.config
    collective = config.strategy == "MultiWorkerMirrored"
    changed = None
    with (
        peer_loss(config),
        ending_together(config, collective=collective),
    ):
        _agree_on_data(run, strategy)
        with building(config) as watch:
            training = _Training(run, strategy, watch)
        controller = Controller(
            run, training.inner, training.store,
            strategy=strategy,
            counter=training.step,
            course=training.course,
            watch=step_watch(
                config, batches=lambda: training.inner.batches, waits=lambda: training.inner.waits_for_others
            ),
            actions=training.actions,
            replicas=training.replicas,
        )  # fmt: skip
        if config.cluster.leads:
            log.info(training.describe())
            controller.introduce()
        else:
            log.info(f"{config.cluster.task}: training; {config.cluster.leader} reports the progress")
        controller.train(training.stream, finalize=training.finalize)
        # All tasks read: what replicas keep each by itself is reduced over all of them.
        weights = [weight.numpy() for weight in training.model.weights]
        if config.cluster.leads:
            # What a layer gives for an example with others depends on how many they are.
            devices = 1 if run.model.of_all else strategy.num_replicas_in_sync
            try:
                finish(
                    run, controller.reporter, controller.summaries,
                    weights=weights,
                    step=controller.step,
                    best_step=training.best_step,
                    checkpoint=training.store.path(),
                    batch=-(-training.course.batch // devices),
                )  # fmt: skip
            except DataChanged as error:
                changed = error
        if collective:
            exit_barrier(config)
        if not config.cluster.leads:
            run.progress_store.update(phase=Phase.DONE, step=controller.step, eta_seconds=None)
            leave_report(run.progress_store.document())
    if changed:
        raise changed


def _in_single_steps_if_ragged(run: Run, replicas: int) -> Run:
    """With ragged inputs, several replicas take one step in each TensorFlow call.

    The gradient of an embedding has a row for each value of a batch. TensorFlow 2.21 sums rows of changing number over
    replicas, but keeps the first number for the rest of a call: the second step ends with "Shape mismatch in the
    collective instance".
    """
    ragged = any(isinstance(spec, tf.RaggedTensorSpec) for spec in tf.nest.flatten(run.data.input_spec))
    if replicas == 1 or not ragged or run.config.steps_per_call == 1:
        return run
    if run.config.cluster.leads:
        log.info(f"{run.data.name}: inputs are ragged, so that {replicas} replicas take one step a call")
    return replace(run, context=replace(run.context, config=replace(run.config, steps_per_call=1)))


class _Training:
    """The model and all that it is trained by, as of the newest checkpoint."""

    def __init__(self, run: Run, strategy: Any, watch: Watch) -> None:
        config = run.config
        self._run = run
        self._strategy = strategy
        batch = config.batch_size.over(strategy.num_replicas_in_sync)
        course = Course(examples=run.data.examples, epochs=config.epochs, batch=batch)
        seed_alike(config)
        with strategy.scope():
            self.model = model = run.model.build(run.data)
            if config.strategy == "CentralStorage":
                _check_for_central_storage(model)
            made = optimizers.make(model, config.learning, total_steps=course.total_steps)
            self._optimizer = optimizer = made.optimizer
            optimizer.build(model.trainable_variables)
            weight_update.sum_first(optimizer)
            self.step, total = new_counter(), new_counter()
        remembered = two_kerases.state(optimizer)
        seen = SeenExamples(run, course, step=self.step, total_steps=total)
        names, weights = variable_names.of_training(model, optimizer, remembered), two_kerases.variables(model.weights)
        state = seen.state(names, weights=weights, optimizer=remembered)
        named = zip((*names["weights"], *names["optimizer"]), (*weights, *remembered), strict=True)
        self.replicas = ComparedReplicas(config, strategy, named)
        self.store = Store.of(state, config.checkpoint, writes=config.cluster.leads)
        self.course = seen.restore(self.store, strategy, waiting=watch.waiting)
        self._learning = made.over(self.course.total_steps).description
        with strategy.scope():
            # Losses that Keras computes need the optimizer that it will have.
            model.optimizer = optimizer
            objective = run.model.objective(model, run.data, batch=batch)
        self.inner = SynchronousLoop(
            strategy=strategy, objective=objective, model=model, optimizer=optimizer, step=self.step,
            max_steps=config.steps_per_call, skips=config.on_nan == SKIP, often_saved=config.looks_often,
        )  # fmt: skip
        self.actions: list[Action] = [
            *load_actions(config.user_code.actions, model, total_steps=self.course.total_steps)
        ]
        self._validations: Validations | None = None
        if config.validation.every:
            self._validations = Validations(
                run, strategy, self.store,
                model=model, objective=objective, course=self.course, first_step=int(self.step.numpy()),
            )  # fmt: skip
            self.actions.append(self._validations)

    @property
    def best_step(self) -> int | None:
        """Whose weights are exported, if it is not the last."""
        return self._validations.best_step if self._validations else None

    def describe(self) -> str:
        """What is trained how."""
        course, replicas = self.course, self._strategy.num_replicas_in_sync
        least, rest = divmod(course.batch, replicas)
        share = f"{least} or {least + 1}" if rest else f"{least}"
        return (
            f"batch {course.batch} global, {share} per replica  replicas {replicas}  "
            f"{self._learning}  {course.total_steps} steps: {course.epochs} epochs of {course.examples} examples"
        )

    def stream(self, first_step: int) -> Any:
        """The batches from this step on."""
        course, seed = self.course, self._run.config.seed
        return distributed(
            self._run.data, self._strategy, batch=course.batch, seed=seed, first_step=first_step, offset=course.offset
        )

    def finalize(self) -> None:
        """What the last step leaves to do with the weights."""
        config = self._run.config
        best, kept = self.best_step, config.validation.keep_best
        if best and kept and self._restore_best(best):
            if config.cluster.leads:
                log.info(
                    f"the weights are those of step {best}, the best one by --keep-best={kept.metric} ({kept.mode})"
                )
            # As with Keras' `restore_best_weights`: their moving average was never validated.
            return
        weight_average.finalize(weight_update.inner(self._optimizer), self.model.trainable_variables, self._strategy)

    def _restore_best(self, best: int) -> bool:
        """Restores the best step on all tasks, or on none: one of them may not be able to read it any more."""
        config = self._run.config
        problem = self.store.problem_of(best)
        readable = problem is None
        if config.strategy == "MultiWorkerMirrored":
            readable = all(of_each_replica(self._strategy, int(readable)))
        if readable:
            self.store.restore(best)
            return True
        assert self._validations is not None  # there is a best step
        self._validations.give_up_best()
        if problem or config.cluster.leads:
            log.warning(
                f"the best checkpoint, of step {best}, cannot be read any more ({problem or 'by another task'}); the "
                "weights are those of the last step"
            )
        return False


def _agree_on_data(run: Run, strategy: Any) -> None:
    """Waits until all tasks have read their data, and agrees with them on it."""
    config = run.config
    limit = 2 * limit_seconds(config)
    late = PeerLost(f"the data of another task are not ready after {limit:g} s (--stall-timeout)")
    with Watchdog(limit, late):
        agree_on_data(config, strategy, run.data)


def _check_for_central_storage(model: Any) -> None:
    if any(layer.trainable for layer in batch_normalizations(model)):
        raise UsageError(
            "strategy CentralStorage: the model has a BatchNormalization, and TensorFlow lets no replica set its "
            "statistics there; leave the layer out, or use strategy Mirrored"
        )
    if random_layers.states(model):
        raise UsageError(
            "strategy CentralStorage: the model draws random numbers, as for dropout, and TensorFlow lets no replica "
            "count them there; leave these layers out, or use strategy Mirrored"
        )
