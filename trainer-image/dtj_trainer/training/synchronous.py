"""The synchronous strategies: every task runs this, in step with the others. Imports TensorFlow."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from dtj_launch.progress import Phase
from dtj_trainer import keras_compat
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.manager import State, Store
from dtj_trainer.compat import keras3
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.sharding import distributed
from dtj_trainer.distribution.stall_watch import StallWatch
from dtj_trainer.distribution.strategies import (
    agree_on_data,
    agree_on_start,
    exit_barrier,
    of_each_replica,
    peer_loss,
    save_together,
)
from dtj_trainer.metrics.aggregation import ByExample, Measured
from dtj_trainer.metrics.reporting import Reporter, Run
from dtj_trainer.metrics.step_timing import Every
from dtj_trainer.metrics.tensorboard import Summaries
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.errors import NotFinite, PeerLost, Preempted, UsageError
from dtj_trainer.process.watchdog import Watchdog
from dtj_trainer.training import keras_fit, optimizers, rng_state, weight_update
from dtj_trainer.training.finalize import finish
from dtj_trainer.training.nonfinite import ROLLBACK, SKIP, last_words, on_which, workers_of
from dtj_trainer.training.stepping import is_checkpoint_step, steps_until_checkpoint, steps_within
from dtj_trainer.training.stepping import total_steps as count_steps
from dtj_trainer.training.synchronous_step import Engine, StepResult, Vote
from dtj_trainer.training.validations import Validations
from dtj_trainer.user_code.objective import overrides


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
    learning: str
    """What a person is told of the optimizer."""
    first_step: int
    total_steps: int


def train(run: Run, strategy: Any) -> None:
    """Trains from the newest checkpoint, or from the start, to the last step; the leader then finishes the run.

    Raises:
        Preempted: told to stop; all tasks have saved the same step.
        PeerLost: another task went away.
        NotFinite: the loss or the weights are not finite, and the training must not go on.
        UsageError: the batch or the checkpoint directory does not fit the job.
    """
    config = run.config
    with peer_loss(config.cluster, remote=bool(config.tpu_runtimes)):
        session = _build(run, strategy)
        summaries = Summaries(config.log_dir / "train" if config.log_dir and config.cluster.leads else None)
        reporter = Reporter(
            run, summaries, batch=session.batch, step=session.first_step, total_steps=session.total_steps
        )
        _introduce(run, session, strategy.num_replicas_in_sync)
        try:
            step = _loop(run, strategy, session, reporter)
        finally:
            summaries.flush()
        best = session.validations.best_step if session.validations else None
        # All tasks read: what tf_keras' BatchNormalization keeps by replica is reduced over all of them.
        weights = [weight.numpy() for weight in session.model.weights]
        if config.cluster.leads:
            finish(
                run, reporter, summaries,
                weights=weights,
                step=step,
                best_step=best,
                checkpoint=session.store.path(),
                batch=-(-session.batch // strategy.num_replicas_in_sync),
            )  # fmt: skip
        if config.strategy == "MultiWorkerMirrored":
            exit_barrier(config, say=run.say)


def _build(run: Run, strategy: Any) -> _Session:
    config = run.config
    limit = 2 * max(config.stall_timeout, config.start_timeout)
    late = PeerLost(f"the data of another task are not ready after {limit:g} s (--stall-timeout)")
    with Watchdog(limit, late, end_with=end_with):
        agree_on_data(config, strategy, run.data)
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
    store = Store(
        state,
        config.checkpoint.directory,
        keep=config.checkpoint.keep,
        writes=config.cluster.leads,
        say=run.say,
    )
    store.restore_newest()
    if rate:
        rate.restored()
    total.assign(total_steps)
    first_step = int(step.numpy())
    agree_on_start(config, strategy, first_step)
    if not fits and config.user_code.model and overrides(model, "train_step"):
        raise UsageError(
            f"{config.user_code.model}: {type(model).__name__} has a train_step of its own, which --loop=custom does "
            "not call; give --loop=fit"
        )
    own = getattr(run.task, "objective", None)
    with strategy.scope():
        # Losses that Keras computes need the optimizer that it will have.
        if own is not None:
            model.optimizer = optimizer
        objective = ByExample(run.task, model, batch=batch) if own is None else own(model, run.data, batch=batch)
    engine = Engine(
        strategy=strategy, task=run.task, model=model, optimizer=optimizer, step=step, batch=batch,
        train_step=model.train_step if fits else None, objective=objective,
        skips=config.on_nan.action == SKIP,
    )  # fmt: skip
    if fits:
        with strategy.scope():
            keras_fit.prepare(model, optimizer, loss=engine.loss, steps_per_call=config.steps_per_call)
    validations = None
    if config.validation.every:
        validations = Validations(
            run, strategy, store, model=model, objective=objective, batch=batch, total_steps=total_steps,
            first_step=first_step,
        )  # fmt: skip
    return _Session(
        strategy=strategy, model=model, engine=engine, store=store, finalization=finalization,
        validations=validations, batch=batch, learning=made.description,
        first_step=first_step, total_steps=total_steps,
    )  # fmt: skip


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


def _introduce(run: Run, session: _Session, replicas: int) -> None:
    config = run.config
    if not config.cluster.leads:
        run.say(f"{config.cluster.task}: training; {config.cluster.leader} tells the progress")
        return
    least, rest = divmod(session.batch, replicas)
    share = f"{least} or {least + 1}" if rest else f"{least}"
    run.say(
        f"batch {session.batch} global, {share} per replica  replicas {replicas}  "
        f"{session.learning}  {session.total_steps} steps: "
        f"{config.epochs} epochs of {run.data.examples} examples"
    )
    if session.store.path():
        run.say(f"resumed: step {session.first_step} of {session.total_steps} from {session.store.path()}")
    elif not session.store.enabled:
        run.say("no checkpoint directory: a restart begins at step 0")
    if session.store.enabled and config.user_code.model and (layers := rng_state.unseeded_layers(session.model)):
        run.say(
            f"warning: {config.user_code.model}: {', '.join(layers)} draw random numbers that no checkpoint holds, so "
            'a resumed run draws others; make them without rng_type="legacy_stateful"'
        )


class _Loop:
    """The way from the first step to the last, in calls of the engine that each end in an agreement."""

    def __init__(self, run: Run, session: _Session, reporter: Reporter, watch: StallWatch) -> None:
        self._run = run
        self._session = session
        self._reporter = reporter
        self._watch = watch
        self._save_due = Every(run.config.checkpoint.every_seconds)
        # The first call traces: the sooner it ends, the sooner it is seen that the job trains.
        self._next_steps = self._wanted = 1
        self.step = session.first_step
        self._rolled_back = self._skipped = 0
        self._left_out: set[int] = set()
        self._saved: int | None = None

    def train(self, stream: Callable[[int], Any]) -> None:
        """Trains to the last step, over what `--on-nan` says.

        Args:
            stream: first step -> the batches from there on, distributed.

        Raises:
            NotFinite: the loss or the weights are not finite, too often or where that ends the training.
            Preempted: told to stop; all tasks have saved the same step.
        """
        total_steps = self._session.total_steps
        if self._run.config.on_nan.action == ROLLBACK and self._session.store.last_step is None:
            self.save()
        self.begin()
        while self.step < total_steps:
            until = min((step for step in self._left_out if step >= self.step), default=total_steps)
            try:
                if self.step < until:
                    self.advance(iter(stream(self.step)), until)
            except _NotFiniteStep as found:
                if self._run.config.on_nan.action != ROLLBACK:
                    raise
                self._go_back(found)
                continue
            if self.step < total_steps:
                self._session.engine.pass_over()
                self.step += 1
        self.save()

    def begin(self) -> None:
        """Validates the step that the run begins with, if the run before this one could not any more.

        Raises:
            Preempted: told to stop.
        """
        validations = self._session.validations
        if validations and validations.is_due and not self._validate():
            self.save()
            raise self._preempted()

    def _validate(self) -> bool:
        """Validates the step that the loop stands at, on all tasks; False if one of them was told to stop."""
        validations = self._session.validations
        assert validations is not None
        began = time.monotonic()
        # The first one traces.
        self._watch.begin()
        self._watch.in_call = True
        finished = validations.run(self.step, alive=self._watch.feed, save=self.save)
        self._watch.in_call = False
        self._watch.feed()
        self._reporter.pause(time.monotonic() - began)
        return finished

    def _preempted(self) -> Preempted:
        where = f"step {self.step} of {self._session.total_steps}"
        return Preempted(f"preempted: all tasks saved {where}; the job resumes there")

    def advance(self, iterator: Any, until: int) -> Measured:
        """Trains up to this step, and saves and reports on the way; the means of the metrics over the steps taken.

        All tasks must ask for the same step.

        Raises:
            Preempted: told to stop; all tasks have saved the same step.
        """
        measured: Measured | None = None
        while self.step < until:
            here = self._call(iterator, until)
            measured = here if measured is None else measured + here
        return Measured([], lambda _: {}) if measured is None else measured

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved; on all tasks, or on none."""
        if self._saved != self.step:
            self._watch.save()
            save_together(self._run.config, self._session.strategy, self._session.store, self.step)
            self._saved = self.step
            self._watch.feed()

    def _call(self, iterator: Any, until: int) -> Measured:
        config, store, total_steps = self._run.config, self._session.store, self._session.total_steps
        steps = min(
            self._next_steps, until - self.step, steps_until_checkpoint(self.step, total_steps, config.checkpoint)
        )
        validations = self._session.validations
        if validations:
            steps = min(steps, validations.steps_until_validation(self.step))
        vote = Vote(
            stop=self._run.termination.requested,
            save=config.cluster.leads and self._save_due.due(),
            next_steps=self._wanted if config.cluster.leads else 0,
        )
        began = time.monotonic()
        self._watch.in_call = True
        outcome = self._session.engine.run(iterator, steps, vote)
        self._watch.in_call = False
        self._watch.feed()
        self.step, self._next_steps = self.step + steps, outcome.next_steps
        self._wanted = steps_within(config.steps_per_call, steps / (time.monotonic() - began))
        self._check(outcome, steps)
        at_mark = is_checkpoint_step(self.step, total_steps, config.checkpoint)
        validates = validations is not None and validations.is_validation_step(self.step) and not outcome.stop
        if (outcome.stop or outcome.save or at_mark or validates) and not self._session.engine.weights_are_finite():
            raise self._not_finite("the weights are", self.step, ())
        stop = not self._validate() if validates else outcome.stop
        if stop or self.step >= total_steps:
            self.save()
        elif outcome.save or at_mark:
            store.save_async(self.step)
        metrics = self._shown(outcome)
        self._reporter.report(
            self.step, metrics,
            validated=validations.values if validations else {},
            last_checkpoint_step=store.last_step, waited=outcome.waited,
        )  # fmt: skip
        if stop:
            raise self._preempted()
        return outcome.metrics

    def _shown(self, outcome: StepResult) -> Mapping[str, float]:
        """The metrics of a call, and how often the training went on over what was not finite."""
        counts = {"rollbacks": self._rolled_back, "skipped_steps": self._skipped + len(self._left_out)}
        return {
            **{name: value for name, value in outcome.metrics.items() if math.isfinite(value) or not outcome.skipped},
            **{name: count for name, count in counts.items() if count},
        }

    def _check(self, outcome: StepResult, steps: int) -> None:
        """That a call was finite, or that it may go on all the same."""
        if outcome.not_finite_step is None:
            return
        policy, cluster = self._run.config.on_nan, self._run.config.cluster
        step = self.step - steps + outcome.not_finite_step
        replicas = self._session.strategy.num_replicas_in_sync
        workers = workers_of(cluster, outcome.not_finite_replicas, total=replicas)
        if policy.action != SKIP:
            raise self._not_finite("the loss is", step, workers)
        self._skipped += outcome.skipped
        if self._skipped > policy.limit:
            raise self._not_finite("the loss or a gradient is", step, workers)
        if cluster.leads:
            more = f", and of {outcome.skipped - 1} later ones" if outcome.skipped > 1 else ""
            self._run.say(
                f"warning: the loss or a gradient is not finite at step {step}{on_which(workers)}: its update{more} is "
                f"skipped ({self._skipped} of at most {policy.limit})"
            )

    def _not_finite(self, what: str, step: int, workers: Sequence[str]) -> "_NotFiniteStep":
        """Says where the training stands; waits for the checkpoint that is being written, which is finite."""
        policy, store = self._run.config.on_nan, self._session.store
        store.settle()
        where = f"{what} not finite at step {step}{on_which(workers)}"
        return _NotFiniteStep(last_words(where, store.path(), policy), step=step, where=where)

    def _go_back(self, found: "_NotFiniteStep") -> None:
        """To the last checkpoint, on all tasks; the batch of the step is left out from now on.

        Raises:
            NotFinite: too often.
        """
        run, store = self._run, self._session.store
        if self._rolled_back >= run.config.on_nan.limit:
            raise found
        self._rolled_back += 1
        step = store.last_step or 0
        if run.config.strategy == "MultiWorkerMirrored":
            # The first replica is the leader's, which knows what was written.
            step = of_each_replica(self._session.strategy, step)[0]
        store.restore(step)
        self.step = step
        self._left_out.add(found.step - 1)
        if run.config.cluster.leads:
            run.say(
                f"warning: {found.where}: back to step {step}, {store.path()}; the batch of step {found.step} is "
                f"left out (rollback {self._rolled_back} of at most {run.config.on_nan.limit})"
            )


class _NotFiniteStep(NotFinite):
    """See `NotFinite`."""

    def __init__(self, message: str, *, step: int, where: str) -> None:
        super().__init__(message)
        self.step = step
        self.where = where


def _loop(run: Run, strategy: Any, session: _Session, reporter: Reporter) -> int:
    """Trains to the end, and returns the step that was reached: a callback of Keras may end it early."""
    with StallWatch(run.config, batches=lambda: session.engine.batches) as watch:
        watch.begin()
        return _watched(run, strategy, session, _Loop(run, session, reporter, watch))


def _watched(run: Run, strategy: Any, session: _Session, loop: _Loop) -> int:
    config = run.config

    def stream(first_step: int) -> Any:
        return distributed(run.data, strategy, batch=session.batch, seed=config.seed, first_step=first_step)

    run.progress_store.update(phase=Phase.TRAINING, last_checkpoint_step=session.store.last_step)
    run.termination.saves = session.store.enabled
    if config.loop == "fit":
        loop.begin()
        keras_fit.fit(
            session.model, loop, stream,
            callbacks=config.user_code.callbacks,
            validations=session.validations,
            total_steps=session.total_steps,
            steps_per_epoch=-(-run.data.examples // session.batch),
            steps_per_call=config.steps_per_call,
            finalization=session.finalization,
        )  # fmt: skip
    else:
        loop.train(stream)
    run.termination.saves = False
    if session.validations and (best := session.validations.best_step):
        session.store.restore(best)
        session.finalization.undone()
        if config.cluster.leads:
            run.say(f"the weights are those of step {best}, the best one by {_describe_best(config)}")
    session.finalization.do()
    return loop.step


def _describe_best(config: Config) -> str:
    kept = config.validation.keep_best
    assert kept is not None  # there is a best step
    return f"--keep-best={kept.metric} ({kept.mode})"
