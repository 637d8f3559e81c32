"""The synchronous strategies: every task runs this, in step with the others. Imports TensorFlow."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import draws, keras_fit, kerases, optimizers, packing
from dtj_trainer.checkpoints import State, Store
from dtj_trainer.config import Config
from dtj_trainer.data.sharding import distributed
from dtj_trainer.engine import Engine, Wishes
from dtj_trainer.errors import Preempted, UsageError
from dtj_trainer.finish import finish
from dtj_trainer.progress import Every, Phase
from dtj_trainer.run import Reporter, Run
from dtj_trainer.schedule import is_mark, steps_to_mark, steps_within
from dtj_trainer.schedule import total_steps as count_steps
from dtj_trainer.strategies import agree_on_start, part, peer_loss
from dtj_trainer.summaries import Summaries


@dataclass(frozen=True, kw_only=True)
class _Session:
    """What is built before the first step."""

    model: Any
    engine: Engine
    store: Store
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
        UsageError: the batch or the checkpoint directory does not fit the job.
    """
    config = run.config
    with peer_loss(config.cluster):
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
        if config.cluster.leads:
            finish(
                run, reporter, summaries,
                weights=[weight.numpy() for weight in session.model.weights],
                step=step,
                checkpoint=session.store.path(),
            )  # fmt: skip
        if config.strategy == "MultiWorkerMirrored":
            part(config.cluster, say=run.say)


def _build(run: Run, strategy: Any) -> _Session:
    config = run.config
    batch = config.batch_size.over(strategy.num_replicas_in_sync)
    total_steps = count_steps(run.data.examples, epochs=config.epochs, batch=batch)
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        with draws.counted(config.seed):
            model = run.task.build_model(keras, run.data)
        _check_library(config, model)
        made = optimizers.make(model, config.learning, batch=batch, total_steps=total_steps)
        optimizer = made.optimizer
        optimizer.build(model.trainable_variables)
        if config.pack_gradients:
            packing.pack_gradients(optimizer, kerases.of(model))
        step, total = _counter(), _counter()
    state = State(
        weights=kerases.variables(model.weights),
        optimizer=kerases.state(optimizer),
        step=step,
        total_steps=total,
    )
    store = Store(
        state,
        config.checkpoint.directory,
        keep=config.checkpoint.keep,
        writes=config.cluster.leads,
        say=run.say,
    )
    store.restore_newest()
    total.assign(total_steps)
    first_step = int(step.numpy())
    agree_on_start(config, strategy, first_step)
    fits = config.loop == "fit"
    engine = Engine(
        strategy=strategy, task=run.task, model=model, optimizer=optimizer, step=step, batch=batch,
        train_step=model.train_step if fits else None,
    )  # fmt: skip
    if fits:
        with strategy.scope():
            keras_fit.prepare(model, optimizer, loss=engine.loss, steps_per_call=config.steps_per_call)
    return _Session(
        model=model, engine=engine, store=store, batch=batch, learning=made.told,
        first_step=first_step, total_steps=total_steps,
    )  # fmt: skip


def _check_library(config: Config, model: Any) -> None:
    if config.strategy != "CentralStorage":
        return
    if kerases.of(model) is not keras:
        raise UsageError(
            "strategy CentralStorage: the model is one of tf_keras, whose optimizers cannot follow a learning rate "
            "there; build it with Keras 3, or use strategy Mirrored"
        )
    if draws.states(model):
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
    elif not session.store.keeps:
        run.say("no checkpoint directory: a restart begins at step 0")
    if session.store.keeps and config.own.model and (layers := draws.uncounted(session.model)):
        run.say(
            f"warning: {config.own.model}: {', '.join(layers)} draw random numbers that no checkpoint holds, so a "
            'resumed run draws others; make them without rng_type="legacy_stateful"'
        )


class _Loop:
    """The way from the first step to the last, in calls of the engine that each end in an agreement."""

    def __init__(self, run: Run, session: _Session, reporter: Reporter) -> None:
        self._run = run
        self._session = session
        self._reporter = reporter
        self._save_due = Every(run.config.checkpoint.every_seconds)
        # The first call traces: the sooner it ends, the sooner it is seen that the job trains.
        self._next_steps = self._wanted = 1
        self.step = session.first_step

    def advance(self, iterator: Any, until: int) -> Mapping[str, float]:
        """Trains up to this step, and saves and reports on the way; the means of the metrics over the steps taken.

        All tasks must ask for the same step.

        Raises:
            Preempted: told to stop; all tasks have saved the same step.
        """
        first, sums = self.step, dict.fromkeys(self._run.task.metrics, 0.0)
        while self.step < until:
            before = self.step
            metrics = self._call(iterator, until)
            for name in sums:
                sums[name] += metrics[name] * (self.step - before)
        return {name: value / max(1, self.step - first) for name, value in sums.items()}

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved."""
        self._session.store.save(self.step)

    def _call(self, iterator: Any, until: int) -> Mapping[str, float]:
        config, store, total_steps = self._run.config, self._session.store, self._session.total_steps
        steps = min(self._next_steps, until - self.step, steps_to_mark(self.step, total_steps, config.checkpoint))
        wishes = Wishes(
            stop=self._run.termination.requested,
            save=config.cluster.leads and self._save_due.due(),
            next_steps=self._wanted if config.cluster.leads else 0,
        )
        began = time.monotonic()
        outcome = self._session.engine.run(iterator, steps, wishes)
        self.step, self._next_steps = self.step + steps, outcome.next_steps
        self._wanted = steps_within(config.steps_per_call, steps / (time.monotonic() - began))
        if outcome.stop or self.step >= total_steps:
            self.save()
        elif outcome.save or is_mark(self.step, total_steps, config.checkpoint):
            store.save_meanwhile(self.step)
        self._reporter.report(self.step, outcome.metrics, last_checkpoint_step=store.last_step, waited=outcome.waited)
        if outcome.stop:
            raise Preempted(f"preempted: all tasks saved step {self.step} of {total_steps}; the job resumes there")
        return outcome.metrics


def _loop(run: Run, strategy: Any, session: _Session, reporter: Reporter) -> int:
    """Trains to the end, and returns the step that was reached: a callback of Keras may end it early."""
    config, loop = run.config, _Loop(run, session, reporter)

    def stream(first_step: int) -> Any:
        return distributed(run.data, strategy, batch=session.batch, seed=config.seed, first_step=first_step)

    run.board.update(phase=Phase.TRAINING, last_checkpoint_step=session.store.last_step)
    run.termination.saves = session.store.keeps
    if config.loop == "fit":
        keras_fit.fit(
            session.model, loop, stream,
            callbacks=config.own.callbacks,
            total_steps=session.total_steps,
            steps_per_epoch=-(-run.data.examples // session.batch),
            steps_per_call=config.steps_per_call,
        )  # fmt: skip
        loop.save()
    else:
        loop.advance(iter(stream(loop.step)), session.total_steps)
    run.termination.saves = False
    return loop.step
