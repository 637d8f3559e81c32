"""The synchronous strategies: every task runs this, in step with the others. Imports TensorFlow."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import keras_compat, rng_state
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.checkpoint.state import State
from dtj_trainer.compat import keras3
from dtj_trainer.config.nonfinite import SKIP
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.sharding import distributed
from dtj_trainer.distribution.stall_watch import StallWatch
from dtj_trainer.distribution.strategies import (
    agree_on_data,
    agree_on_start,
    exit_barrier,
    peer_loss,
)
from dtj_trainer.object_store.checkpoints import mirror_of
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.errors import PeerLost, UsageError
from dtj_trainer.process.watchdog import Watchdog
from dtj_trainer.tasks.aggregation import ByExample, Objective
from dtj_trainer.training import keras_fit, optimizers, weight_update
from dtj_trainer.training.actions import Action
from dtj_trainer.training.controller import Controller
from dtj_trainer.training.finalize import finish
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.stepping import total_steps as count_steps
from dtj_trainer.training.synchronous_step import Engine
from dtj_trainer.training.user_actions import load_actions
from dtj_trainer.training.validations import Validations
from dtj_trainer.user_code.objective import overrides

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Session:
    """What is built before the first step."""

    strategy: Any
    model: Any
    engine: Engine
    store: Store
    finalization: weight_update.Finalization
    validations: Validations | None
    batch: int
    actions: Sequence[Action]
    """All of them: the user's, and the validations."""
    learning: str
    """How the optimizer is described to a person."""
    step: Any
    """int64 tf.Variable; counts the steps done."""
    total_steps: int

    @property
    def best_step(self) -> int | None:
        """Whose weights are exported, if it is not the last."""
        return self.validations.best_step if self.validations else None


def train(run: Run, strategy: Any) -> None:
    """Trains from the newest checkpoint, or from the start, to the last step; the leader then finishes the run.

    Raises:
        Preempted: asked to stop; all tasks have saved the same step.
        PeerLost: another task went away.
        NotFinite: the loss or the weights are not finite, and the training must not go on.
        UsageError: the batch or the checkpoint directory does not fit the job.
    """
    run = _in_single_steps_if_ragged(run, strategy.num_replicas_in_sync)
    config = run.config
    with peer_loss(config.cluster, remote=bool(config.tpu_runtimes)):
        session = _build(run, strategy)
        controller = Controller(
            run, session.engine, session.store,
            strategy=strategy,
            counter=session.step,
            batch=session.batch,
            total_steps=session.total_steps,
            watch=StallWatch(config, batches=lambda: session.engine.batches),
            actions=session.actions,
        )  # fmt: skip
        _introduce(run, session, controller, strategy.num_replicas_in_sync)
        _train(run, strategy, session, controller)
        # All tasks read: what tf_keras' BatchNormalization keeps by replica is reduced over all of them.
        weights = [weight.numpy() for weight in session.model.weights]
        if config.cluster.leads:
            finish(
                run, controller.reporter, controller.summaries,
                weights=weights,
                step=controller.step,
                best_step=session.best_step,
                checkpoint=session.store.path(),
                batch=-(-session.batch // strategy.num_replicas_in_sync),
            )  # fmt: skip
        if config.strategy == "MultiWorkerMirrored":
            exit_barrier(config)


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


def _build(run: Run, strategy: Any) -> _Session:
    config = run.config
    _agree_on_data(run, strategy)
    batch = config.batch_size.over(strategy.num_replicas_in_sync)
    total_steps = count_steps(run.data.examples, epochs=config.epochs, batch=batch)
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        with rng_state.seeded_rng(config.seed):
            model = run.task.build_model(keras, run.data)
        _check_library(config, model)
        fits = config.loop == "fit"
        made = optimizers.make(model, config.learning, batch=batch, total_steps=total_steps, settable=fits)
        optimizer = made.optimizer
        optimizer.build(model.trainable_variables)
        weight_update.sum_first(optimizer, packed=config.pack_gradients)
        finalization = weight_update.Finalization(optimizer, model.trainable_variables)
        step, total = _counter(), _counter()
        rate = made.settable_rate() if fits else None
    remembered = keras_compat.state(optimizer)
    state = State(
        variable_names.of_training(model, optimizer, remembered),
        weights=keras_compat.variables(model.weights),
        optimizer=remembered,
        step=step,
        total_steps=total,
        **({"rate": rate.state} if rate else {}),
    )
    store = _restored(state, config)
    if rate:
        rate.restored()
    total.assign(total_steps)
    first_step = int(step.numpy())
    agree_on_start(config, strategy, first_step)
    _check_train_step(config, model)
    objective = _objective(run, strategy, model, optimizer, batch=batch)
    engine = Engine(
        strategy=strategy, task=run.task, model=model, optimizer=optimizer, step=step, batch=batch,
        max_steps=config.steps_per_call, train_step=model.train_step if fits else None, objective=objective,
        skips=config.on_nan.action == SKIP,
    )  # fmt: skip
    if fits:
        with strategy.scope():
            keras_fit.prepare(model, optimizer, loss=engine.loss, steps_per_call=config.steps_per_call)
    actions = load_actions(config.user_code.actions, model, total_steps=total_steps)
    validations = None
    if config.validation.every:
        validations = Validations(
            run, strategy, store, model=model, objective=objective, batch=batch, total_steps=total_steps,
            first_step=first_step,
        )  # fmt: skip
    return _Session(
        strategy=strategy, model=model, engine=engine, store=store, finalization=finalization,
        validations=validations, actions=[*actions, *([validations] if validations else [])],
        batch=batch, learning=made.description,
        step=step, total_steps=total_steps,
    )  # fmt: skip


def _agree_on_data(run: Run, strategy: Any) -> None:
    """Waits until all tasks have read their data, and agrees with them on it."""
    config = run.config
    limit = 2 * max(config.stall_timeout, config.start_timeout)
    late = PeerLost(f"the data of another task are not ready after {limit:g} s (--stall-timeout)")
    with Watchdog(limit, late, end_with=end_with):
        agree_on_data(config, strategy, run.data)


def _restored(state: State, config: Config) -> Store:
    """The checkpoints of the run; the newest is restored."""
    store = Store(
        state,
        config.checkpoint.directory,
        keep=config.checkpoint.keep,
        mirror=mirror_of(config.checkpoint),
        writes=config.cluster.leads,
    )
    store.restore_newest()
    return store


def _objective(run: Run, strategy: Any, model: Any, optimizer: Any, *, batch: int) -> Objective:
    own = getattr(run.task, "objective", None)
    with strategy.scope():
        if own is None:
            return ByExample(run.task, model, batch=batch)
        # Losses that Keras computes need the optimizer that it will have.
        model.optimizer = optimizer
        objective: Objective = own(model, run.data, batch=batch)
        return objective


def _check_train_step(config: Config, model: Any) -> None:
    if config.loop != "fit" and config.user_code.model and overrides(model, "train_step"):
        raise UsageError(
            f"{config.user_code.model}: {type(model).__name__} has a train_step of its own, which --loop=custom does "
            "not call; give --loop=fit"
        )


def _check_library(config: Config, model: Any) -> None:
    if config.strategy != "CentralStorage":
        return
    if keras_compat.keras_of(model) is not keras:
        raise UsageError(
            "strategy CentralStorage: the model is one of tf_keras, whose optimizers cannot follow a learning rate "
            "there; build it with Keras 3, or use strategy Mirrored"
        )
    layers = keras3.sublayers(model, recursive=True)
    if any(isinstance(layer, keras.layers.BatchNormalization) and layer.trainable for layer in layers):
        raise UsageError(
            "strategy CentralStorage: the model has a BatchNormalization, and TensorFlow lets no replica set its "
            "statistics there; leave the layer out, or use strategy Mirrored"
        )
    if rng_state.states(model):
        raise UsageError(
            "strategy CentralStorage: the model draws random numbers, as for dropout, and TensorFlow lets no replica "
            "count them there; leave these layers out, or use strategy Mirrored"
        )


def _counter() -> Any:
    return tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def _introduce(run: Run, session: _Session, controller: Controller, replicas: int) -> None:
    config = run.config
    if not config.cluster.leads:
        log.info(f"{config.cluster.task}: training; {config.cluster.leader} reports the progress")
        return
    least, rest = divmod(session.batch, replicas)
    share = f"{least} or {least + 1}" if rest else f"{least}"
    log.info(
        f"batch {session.batch} global, {share} per replica  replicas {replicas}  "
        f"{session.learning}  {session.total_steps} steps: "
        f"{config.epochs} epochs of {run.data.examples} examples"
    )
    controller.introduce()
    if session.store.enabled and config.user_code.model and (layers := rng_state.unseeded_layers(session.model)):
        log.warning(
            f"{config.user_code.model}: {', '.join(layers)} draw random numbers that no checkpoint holds, so "
            'a resumed run draws others; make them without rng_type="legacy_stateful"'
        )


def _train(run: Run, strategy: Any, session: _Session, controller: Controller) -> None:
    config = run.config

    def stream(first_step: int) -> Any:
        return distributed(run.data, strategy, batch=session.batch, seed=config.seed, first_step=first_step)

    def fit() -> None:
        keras_fit.fit(
            session.model, controller, stream,
            callbacks=config.user_code.callbacks,
            validations=session.validations,
            total_steps=session.total_steps,
            steps_per_epoch=-(-run.data.examples // session.batch),
            steps_per_call=config.steps_per_call,
            finalization=session.finalization,
        )  # fmt: skip

    def finalize() -> None:
        if best := session.best_step:
            session.store.restore(best)
            session.finalization.undone()
            if config.cluster.leads:
                log.info(f"the weights are those of step {best}, the best one by {_describe_best(config)}")
        session.finalization.do()

    controller.train(stream, fit=fit if config.loop == "fit" else None, finalize=finalize)


def _describe_best(config: Config) -> str:
    kept = config.validation.keep_best
    assert kept is not None  # there is a best step
    return f"--keep-best={kept.metric} ({kept.mode})"
