"""The coordinator of ParameterServer: it hands out steps, and workers take them each at its own pace.

The model is of tf_keras: Keras 3 loses updates of its iteration counter here, since it does not add atomically.
The order of the updates is the workers', so a run is not repeatable to the bit. Imports TensorFlow.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tensorflow as tf
import tf_keras

from dtj_launch.progress import Phase
from dtj_trainer import keras_compat
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.manager import State, Store
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, PS, WORKER
from dtj_trainer.distribution.strategies import peer_loss
from dtj_trainer.metrics.reporting import Reporter, Run
from dtj_trainer.metrics.step_timing import Every
from dtj_trainer.metrics.tensorboard import Summaries
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.errors import NotFinite, PeerLost, Preempted
from dtj_trainer.process.watchdog import Watchdog
from dtj_trainer.training import keras_fit, optimizers, weight_update
from dtj_trainer.training.finalize import finish
from dtj_trainer.training.nonfinite import last_words
from dtj_trainer.training.stepping import is_checkpoint_step, steps_until_checkpoint, steps_within, total_steps

_CALLS_AHEAD = 2
"""Calls that wait or run for each worker: enough that none waits for the coordinator, few enough to stop soon."""
_LOOK_SECONDS = 0.02
_WORKER_SEEDS = 1_000_003

FORGOTTEN_AFTER_SECONDS = 30
"""Servers that hear nothing of a coordinator for so long drop its variables. It makes itself heard twice as often.

TensorFlow's own limit is 600. Servers outlive their coordinator, and the next one makes all variables anew: one that
fails again and again would fill them with copies. A coordinator that was frozen for longer ends as having lost a peer.
"""


def make_strategy(*, min_shard_bytes: int | None = None) -> Any:
    """Connects to the servers of TF_CONFIG, new ones or those of a coordinator before; waits for all of them.

    Args:
        min_shard_bytes: variables are split over the parameter servers along their first axis, into shards of at
            least this size; None keeps each whole, on one of them.
    """
    # It is read when the context connects, which happens in the last line.
    compat.forget_coordinator_after(FORGOTTEN_AFTER_SECONDS)
    resolver, partitioner = tf.distribute.cluster_resolver.TFConfigClusterResolver(), None
    if min_shard_bytes:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes, max_shards=resolver.cluster_spec().num_tasks(PS)
        )
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def train(run: Run, strategy: Any) -> None:
    """Coordinates the training from the newest checkpoint, or from the start, to the last step.

    Raises:
        Preempted: told to stop; the state is saved.
        PeerLost: a parameter server is gone. The loss of a worker is made good by the others.
    """
    config = run.config
    with peer_loss(config.cluster):
        training = _Training(run, strategy)
        summaries = Summaries(config.log_dir / "train" if config.log_dir else None)
        reporter = Reporter(
            run, summaries, batch=training.batch, step=training.first_step, total_steps=training.total_steps
        )
        run.say(
            f"batch {training.batch} a step  workers {config.cluster.count(WORKER)}  parameter servers "
            f"{config.cluster.count(PS)}  {training.learning}  {training.total_steps} steps: "
            f"{config.epochs} epochs of {run.data.examples} examples"
        )
        try:
            training.loop(reporter)
        finally:
            summaries.flush()
        finish(
            run,
            reporter,
            summaries,
            weights=[tf.convert_to_tensor(weight).numpy() for weight in keras_compat.unshard(training.model.weights)],
            step=training.step,
            checkpoint=training.store.path(),
            batch=training.batch,
        )


class _Training:
    """Variables on the parameter servers, and the loop that keeps the workers busy."""

    def __init__(self, run: Run, strategy: Any) -> None:
        config = run.config
        self._run = run
        self._strategy = strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.batch = config.batch_size.over(1)
        self._steps_per_epoch = -(-run.data.examples // self.batch)
        self.total_steps = total_steps(run.data.examples, epochs=config.epochs, batch=self.batch)
        tf_keras.utils.set_random_seed(config.seed)
        with strategy.scope():
            self.model = run.task.build_model(tf_keras, run.data)
            made = optimizers.make(self.model, config.learning, batch=self.batch, total_steps=self.total_steps)
            self._optimizer, self.learning = made.optimizer, made.description
            self._optimizer.build(self.model.trainable_variables)
            self._finalization = weight_update.Finalization(self._optimizer, self.model.trainable_variables)
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            total = tf.Variable(0, dtype=tf.int64, trainable=False)
            # What is beside another variable is never split.
            with strategy.extended.colocate_vars_with(self._step):
                # Sums since the start of each metric, and examples. The coordinator reads how they grow.
                self._sums = tf.Variable(tf.zeros(len(run.task.metrics) + 1, tf.float64), trainable=False)
            self._step_function = self._train_step
            if config.loop == "fit":
                self._step_function = self.model.train_step
                # Keras calls its callbacks once an epoch: more often, the workers would wait for each other.
                keras_fit.prepare(self.model, self._optimizer, loss=self._loss, steps_per_call=self._steps_per_epoch)
        remembered = keras_compat.state(self._optimizer)
        state = State(
            variable_names.of_training(self.model, self._optimizer, remembered),
            # Split or not, checkpoints hold whole tensors: any other strategy, and the evaluator, can read them.
            weights=keras_compat.unshard(self.model.weights),
            optimizer=remembered,
            step=self._step,
            total_steps=total,
        )
        self.store = Store(
            state,
            config.checkpoint.directory,
            keep=config.checkpoint.keep,
            writes=True,
            # Else every parameter server would want to write to the directory itself.
            io_device=f"/job:{CHIEF}/replica:0/task:0/device:CPU:0",
            say=run.say,
        )
        self.store.restore_newest()
        total.assign(self.total_steps)
        self.first_step = self.step = int(self._step.numpy())
        self._save_due = Every(config.checkpoint.every_seconds)
        if split := [weight for weight in keras_compat.unshard(self.model.weights) if hasattr(weight, "variables")]:
            run.say(f"split over the parameter servers: {', '.join(f'{w.name} {tuple(w.shape)}' for w in split)}")
        if self.store.path():
            run.say(f"resumed: step {self.first_step} of {self.total_steps} from {self.store.path()}")

    def loop(self, reporter: Reporter) -> None:
        """Trains to the last step, or until a callback of Keras ends it."""
        run, self._reporter = self._run, reporter
        run.progress_store.update(phase=Phase.TRAINING, last_checkpoint_step=self.store.last_step)
        run.termination.saves = self.store.enabled
        # A worker behind a dead network hangs the coordinator for ever: TensorFlow sends it no heartbeat.
        seconds = run.config.stall_timeout
        stalled = PeerLost(f"no step was finished for {seconds:g} s (--stall-timeout): a task of this job hangs")
        if run.config.loop == "fit":
            train: Callable[[], object] = self._fit
        else:
            iterator = iter(self._coordinator.create_per_worker_dataset(self._examples))
            train = partial(self.advance, iterator, self.total_steps)
        with Watchdog(seconds, stalled, end_with=end_with) as self._watchdog:
            train()
        run.termination.saves = False
        self._finalization.do()

    def _fit(self) -> None:
        keras_fit.fit(
            self.model, self, self._creator,
            callbacks=self._run.config.user_code.callbacks,
            total_steps=self.total_steps,
            steps_per_epoch=self._steps_per_epoch,
            steps_per_call=self._steps_per_epoch,
            finalization=self._finalization,
        )  # fmt: skip
        self.save()

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved."""
        self.store.save(self.step)

    def advance(self, iterator: Any, until: int) -> Mapping[str, float]:
        """Trains up to this step, or a little further where a worker's steps were repeated by another.

        Returns:
            The mean of each metric over the examples of these steps.

        Raises:
            Preempted: told to stop; the state is saved.
        """
        # Steps that were repeated may have gone beyond an epoch's end, and the last epoch then ends before its last.
        until = min(until, self.total_steps)
        before, config = self._sums.numpy(), self._run.config
        # The first step is traced, and sent to all workers: that is part of the start.
        starts = self.step == self.first_step
        self._watchdog.feed(max(config.stall_timeout, config.start_timeout) if starts else None)
        while self.step < until:
            self._leg(iterator, until)
            stops = self._run.termination.requested
            self._check(self._weights_are_finite(), f"the weights are not finite at step {self.step}")
            if stops or self.step >= self.total_steps:
                self.store.save(self.step)
            elif self.step < until or is_checkpoint_step(self.step, self.total_steps, config.checkpoint):
                self.store.save_async(self.step)
            if stops:
                raise Preempted(f"preempted: saved step {self.step} of {self.total_steps}; the job resumes there")
        return self._means(self._sums.numpy() - before)

    def _leg(self, iterator: Any, until: int) -> None:
        """Trains until this step, or until a checkpoint is due, and no step is under way."""
        run, workers, step = self._run, self._run.config.cluster.count(WORKER), self.step
        scheduled = step
        limit = min(until, step + steps_until_checkpoint(step, self.total_steps, run.config.checkpoint))
        reported, sums, done = step, self._sums.numpy(), False
        while not done:
            if run.termination.requested or self._save_due.due():
                limit = scheduled
            rate = self._reporter.meter.steps_per_second
            steps = steps_within(run.config.steps_per_call, rate and rate / workers)
            ahead = min(limit, step + _CALLS_AHEAD * workers * steps)
            while scheduled < ahead:
                scheduled += self._schedule(iterator, min(steps, limit - scheduled))
            # In this order: what is done when nothing runs any more is all of it.
            done = self._coordinator.done() and scheduled >= limit
            before, step = step, int(self._step.numpy())
            if step > before:
                self._watchdog.feed()
            if step - reported >= steps or done:
                sums = self._report(step, sums)
                reported = step
            else:
                time.sleep(_LOOK_SECONDS)
        self._coordinator.join()
        self.step = step

    def _schedule(self, iterator: Any, steps: int) -> int:
        self._coordinator.schedule(self._train_steps, args=(iterator, tf.constant(steps, tf.int64)))
        return steps

    def _report(self, step: int, before: Any) -> Any:
        """Reports the means over what was learned since the sums stood at `before`; returns how they stand now."""
        now = self._sums.numpy()
        if metrics := self._means(now - before):
            self._check(all(map(math.isfinite, metrics.values())), f"the loss is not finite by step {step}")
            self._reporter.report(step, metrics, last_checkpoint_step=self.store.last_step)
        return now

    def _check(self, finite: bool, where: str) -> None:
        """Ends the training where something is not finite; the checkpoint that is being written still is."""
        if not finite:
            self.store.settle()
            raise NotFinite(last_words(where, self.store.path(), self._run.config.on_nan))

    def _weights_are_finite(self) -> bool:
        weights = map(tf.convert_to_tensor, self.model.trainable_weights)
        return all(bool(tf.reduce_all(tf.math.is_finite(weight))) for weight in weights)

    def _means(self, grown: Any) -> dict[str, float]:
        """The mean of each metric over the examples by which the sums have grown; nothing without any."""
        *sums, examples = grown
        if not examples:
            return {}
        return {name: float(value / examples) for name, value in zip(self._run.task.metrics, sums, strict=True)}

    def _examples(self) -> Any:
        """The stream of one worker. Each has an order of its own; together they see as much as one would."""
        return self._strategy.distribute_datasets_from_function(lambda context: self._share(context, self.step))

    def _creator(self, first_step: int) -> Any:
        """The same for Keras, which distributes it itself."""
        return tf_keras.utils.experimental.DatasetCreator(lambda context: self._share(context, first_step))

    def _share(self, context: Any, first_step: int) -> Any:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        return self._run.data.batches(
            batch=context.get_per_replica_batch_size(self.batch),
            seed=self._run.config.seed + _WORKER_SEEDS * (worker + 1),
            first_step=first_step,
        )

    @tf.function(reduce_retracing=True)
    def _train_steps(self, iterator: Any, steps: Any) -> None:
        for _ in tf.range(steps):
            self._strategy.run(self._step_function, args=(next(iterator),))
        self._step.assign_add(steps)

    def _loss(self, outputs: Any, labels: Any, weights: Any = None, inputs: Any = None) -> Any:
        """The mean over a worker's batch, with the penalties of the layers; notes the metrics on the way."""
        task = self._run.task
        metrics = task.compute_metrics(outputs, labels)
        counted = [*(metrics[name] for name in task.metrics), tf.ones_like(metrics["loss"])]
        sums = tf.stack([tf.reduce_sum(values) for values in counted])
        self._sums.assign_add(tf.cast(sums, tf.float64))
        return tf.add_n([tf.reduce_sum(metrics["loss"]) / self.batch, *self.model.losses])

    def _train_step(self, examples: tuple[Any, Any]) -> None:
        inputs, labels = examples
        with tf.GradientTape() as tape:
            loss = weight_update.scaled(self._optimizer, self._loss(self.model(inputs, training=True), labels))
        weights = self.model.trainable_variables
        weight_update.apply(self._optimizer, tape.gradient(loss, weights), weights)
