"""OneDevice, Mirrored and MultiWorkerMirrored: every task runs this, in step with the others. Imports TensorFlow."""

import time
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import kerases, optimizers
from dtj_trainer.checkpoints import State, Store
from dtj_trainer.cluster import CHIEF, WORKER
from dtj_trainer.data.sharding import distributed
from dtj_trainer.engine import Engine, Wishes
from dtj_trainer.errors import Preempted, UsageError
from dtj_trainer.finish import finish
from dtj_trainer.gate import knock
from dtj_trainer.progress import Every, Phase
from dtj_trainer.run import Reporter, Run
from dtj_trainer.schedule import is_mark, steps_to_mark, steps_within
from dtj_trainer.schedule import total_steps as count_steps
from dtj_trainer.strategies import peer_loss, wait_at_end
from dtj_trainer.summaries import Summaries

_OTHERS_SECONDS = 3600.0
_LAST_ONE_SECONDS = 5.0


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
            _loop(run, strategy, session, reporter)
        finally:
            summaries.flush()
            session.store.discard_scratch()
        if config.cluster.leads:
            finish(
                run, reporter, summaries,
                weights=[weight.numpy() for weight in session.model.weights],
                step=max(session.first_step, session.total_steps),
                checkpoint=session.store.path(),
            )  # fmt: skip
        if config.strategy == "MultiWorkerMirrored":
            _part(run)


def _build(run: Run, strategy: Any) -> _Session:
    config = run.config
    batch = config.batch_size.over(strategy.num_replicas_in_sync)
    total_steps = count_steps(run.data.examples, epochs=config.epochs, batch=batch)
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = run.task.build_model(keras, run.data)
        made = optimizers.make(model, config.learning, batch=batch, total_steps=total_steps)
        optimizer = made.optimizer
        optimizer.build(model.trainable_variables)
        step, total = _counter(), _counter()
    state = State(
        weights=kerases.variables(model.weights),
        optimizer=kerases.variables(optimizer.variables),
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
    _agree_on_start(run, strategy, first_step)
    engine = Engine(strategy=strategy, task=run.task, model=model, optimizer=optimizer, step=step, batch=batch)
    return _Session(
        model=model, engine=engine, store=store, batch=batch, learning=made.told,
        first_step=first_step, total_steps=total_steps,
    )  # fmt: skip


def _counter() -> Any:
    return tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def _agree_on_start(run: Run, strategy: Any, step: int) -> None:
    """Makes sure that all tasks restored the same step: a directory that is not shared would train two models."""
    if run.config.strategy != "MultiWorkerMirrored":
        return
    steps = strategy.gather(strategy.run(lambda: tf.constant([step], tf.int64)), axis=0).numpy()
    if any(other != step for other in steps):
        raise UsageError(
            f"checkpoint directory {run.config.checkpoint.directory}: tasks found different steps in it "
            f"({', '.join(map(str, steps))}); it must be one volume that all tasks share"
        )


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


def _loop(run: Run, strategy: Any, session: _Session, reporter: Reporter) -> None:
    config, store = run.config, session.store
    step, total_steps = session.first_step, session.total_steps
    iterator = iter(distributed(run.data, strategy, batch=session.batch, seed=config.seed, first_step=step))
    save_due = Every(config.checkpoint.every_seconds)
    next_steps = wanted = config.steps_per_call
    run.board.update(phase=Phase.TRAINING, last_checkpoint_step=store.last_step)
    run.termination.saves = store.keeps
    while step < total_steps:
        steps = min(next_steps, steps_to_mark(step, total_steps, config.checkpoint))
        wishes = Wishes(
            stop=run.termination.requested,
            save=config.cluster.leads and save_due.due(),
            next_steps=wanted if config.cluster.leads else 0,
        )
        began = time.monotonic()
        outcome = session.engine.run(iterator, steps, wishes)
        step, next_steps = step + steps, outcome.next_steps
        wanted = steps_within(config.steps_per_call, steps / (time.monotonic() - began))
        if outcome.stop or outcome.save or is_mark(step, total_steps, config.checkpoint):
            store.save(step)
        reporter.report(step, outcome.metrics, last_checkpoint_step=store.last_step)
        if outcome.stop:
            raise Preempted(f"preempted: all tasks saved step {step} of {total_steps}; the job resumes there")
    run.termination.saves = False


def _part(run: Run) -> None:
    """Leaves together: the leader carries the coordination service, so it goes when the others have gone."""
    cluster = run.config.cluster
    try:
        wait_at_end(_OTHERS_SECONDS)
    except tf.errors.OpError as error:
        if not cluster.leads:
            raise
        run.say(f"a task left before the end ({type(error).__name__}); the training was complete, so that is no loss")
    if not cluster.leads:
        run.say(f"{cluster.task}: done")
        return
    peers = [(address.host, address.port) for address in cluster.peers(CHIEF, WORKER).values()]
    until = time.monotonic() + _LAST_ONE_SECONDS
    while time.monotonic() < until and any(knock(peer, timeout=0.2) is None for peer in peers):
        time.sleep(0.02)
