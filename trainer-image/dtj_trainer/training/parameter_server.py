"""The coordinator of ParameterServer: it hands out steps, and workers take them each at its own pace.

The model is of tf_keras: Keras 3 loses updates of its iteration counter here, since it does not add atomically.
The order of the updates is the workers', so a run is not repeatable to the bit. Imports TensorFlow.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from dtj_launch.progress import Meter
from dtj_trainer import two_kerases
from dtj_trainer.autograph import as_written
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.finite_weights import FiniteWeights, NotFiniteState
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, PS, WORKER, Task
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.distribution.stall_watch import building, find_silent, step_watch
from dtj_trainer.distribution.strategies import peer_loss
from dtj_trainer.errors import UsageError
from dtj_trainer.training import optimizers, weight_average, weight_update
from dtj_trainer.training.actions import load_actions
from dtj_trainer.training.controller import Controller, StepResult
from dtj_trainer.training.metric_values import Measured, means_by_example
from dtj_trainer.training.model import seed_alike
from dtj_trainer.training.outcome import finish
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.seen_examples import SeenExamples
from dtj_trainer.training.stepping import Course, steps_within

log = logging.getLogger(__name__)

_CALLS_AHEAD = 2
"""Calls that wait or run for each worker: enough that none waits for the coordinator, few enough to stop soon."""
_LOOK_SECONDS = 0.02
_WORKER_SEEDS = 1_000_003

FORGOTTEN_AFTER_SECONDS = 30
"""Servers that hear nothing of a coordinator for so long drop its variables. It makes itself heard twice as often.

TensorFlow's own limit is 600. Servers outlive their coordinator, and the next one makes all variables again: one that
fails again and again would fill them with copies. A coordinator that was frozen for longer ends as having lost a peer.
"""


def make_parameter_server_strategy() -> Any:
    """Connects to the servers of TF_CONFIG, new ones or those of a coordinator before; waits for all of them.

    Raises:
        UsageError: the workers have different numbers of GPUs.
    """
    # It is read when the context connects, which happens in the last line.
    compat.forget_coordinator_after(FORGOTTEN_AFTER_SECONDS)
    try:
        return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    except ValueError as error:
        if "number of GPUs per worker" not in str(error):
            raise
        raise UsageError(
            "strategy ParameterServer: the workers have different numbers of GPUs; give each accelerator.count 1"
        ) from None


def train(run: Run, strategy: Any) -> None:
    """Coordinates the training from the newest checkpoint, or from the start, to the last step.

    Raises:
        UsageError: a worker has several GPUs.
        Preempted: asked to stop; the state is saved.
        PeerLost: a parameter server is gone: by exit code 75 `dtj_launch.restart_in_place` starts the coordinator
            again, and the operator starts all tasks (docs/adr/0009). The loss of a worker is made good by the others.
    """
    # TensorFlow makes each GPU of a worker a replica, and what replicas set in turn has to say how it adds up.
    if strategy.num_replicas_in_sync > 1:
        raise UsageError(
            f"strategy ParameterServer: each worker has {strategy.num_replicas_in_sync} GPUs, and takes its steps on "
            "one; give accelerator.count 1 and more workers"
        )
    config = run.config
    with peer_loss(config):
        with building(config):
            training = _Training(run, strategy)
        controller = Controller(
            run, training, training.store,
            strategy=None,
            counter=training.counter,
            course=training.course,
            watch=training.watch,
            actions=load_actions(config.user_code.actions, training.model, total_steps=training.course.total_steps),
            all_tasks_save=False,
        )  # fmt: skip
        log.info(
            f"batch {training.batch} a step  workers {config.cluster.count(WORKER)}  parameter servers "
            f"{config.cluster.count(PS)}  {training.learning}  {training.course.total_steps} steps: "
            f"{config.epochs} epochs of {run.data.examples} examples"
        )
        controller.introduce()
        controller.train(training.stream, finalize=training.finalize)
        finish(
            run, controller.reporter, controller.summaries,
            weights=[tf.convert_to_tensor(weight).numpy() for weight in training.model.weights],
            step=controller.step,
            checkpoint=training.store.path(),
            batch=training.batch,
        )  # fmt: skip


class _Training:
    """Variables on the parameter servers, and the inner loop that keeps the workers busy."""

    def __init__(self, run: Run, strategy: Any) -> None:
        config = run.config
        self._run = run
        self._strategy = strategy
        compat.forget_executors_in_silence()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.batch = config.batch_size.over(1)
        course = Course(examples=run.data.examples, epochs=config.epochs, batch=self.batch)
        seed_alike(config)
        with strategy.scope():
            self.model = run.model.build(run.data)
            made = optimizers.make(self.model, config.learning, total_steps=course.total_steps)
            self._optimizer = made.optimizer
            self._optimizer.build(self.model.trainable_variables)
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            total = tf.Variable(0, dtype=tf.int64, trainable=False)
            # Sums since the start of each metric, and examples. The coordinator reads how they grow.
            self._sums = tf.Variable(tf.zeros(len(run.model.metrics) + 1, tf.float64), trainable=False)
            # Index of the worker that had the first loss that is not finite; -1 while there is none.
            self._not_finite = tf.Variable(-1, dtype=tf.int64, trainable=False)
            # Of each worker, whether it is in a call of steps.
            self._in_call = tf.Variable(tf.zeros(config.cluster.count(WORKER), tf.bool), trainable=False)
        seen = SeenExamples(run, course, step=self._step, total_steps=total)
        remembered = two_kerases.state(self._optimizer)
        state = seen.state(
            variable_names.of_training(self.model, self._optimizer, remembered),
            weights=self.model.weights,
            optimizer=remembered,
        )
        # Else every parameter server would want to write to the directory itself.
        self.store = Store.of(state, config.checkpoint, writes=True, io_device=Task(CHIEF, 0).cpu)
        self.course = seen.restore(self.store)
        self._weights = FiniteWeights(self.model.trainable_weights, self.model.non_trainable_weights, remembered)
        self.learning = made.over(self.course.total_steps).description
        self._done = self._scheduled = int(self._step.numpy())
        self._reported = self._sums.numpy()
        self._meter = Meter(batch=self.batch, step=self._done)
        self._workers = iter(
            self._coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(_worker()).repeat())
        )
        # A worker behind a dead network hangs the coordinator forever: TensorFlow sends it no heartbeat.
        self.watch = step_watch(config, find_late=self._find_late)

    @property
    def counter(self) -> Any:
        """int64 tf.Variable; the steps done."""
        return self._step

    @property
    def first_steps(self) -> int:
        """See `InnerLoop`: as many as there are, since a call ends when there is something to report."""
        return self.course.total_steps

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """See `InnerLoop`. Ends when some steps are done, while the workers take the next ones; or when all are.

        The step may be a little further then, if steps of a worker that was lost were repeated by another.
        """
        workers = self._run.config.cluster.count(WORKER)
        first = step = self._done
        limit, stop, save, done = first + steps, False, False, False
        while True:
            now = vote()
            stop, save = stop or now.stop, save or now.save
            if stop or save:
                limit = self._scheduled
            rate = self._meter.steps_per_second
            at_once = steps_within(self._run.config.steps_per_call, rate and rate / workers)
            ahead = min(limit, step + _CALLS_AHEAD * workers * at_once)
            while self._scheduled < ahead:
                self._schedule(iterator, min(at_once, limit - self._scheduled))
            # In this order: what is done when nothing runs any more is all of it.
            done = self._coordinator.done() and self._scheduled >= limit
            before, step = step, int(self._step.numpy())
            if step > before:
                self.watch.feed()
            if done or (step - first >= at_once and step < limit and not (stop or save)):
                break
            time.sleep(_LOOK_SECONDS)
        if done:
            self._coordinator.join()
            self._scheduled = step
        self._done = step
        self._meter.mark(step)
        return self._result(step - first, stop=stop, save=save)

    def _result(self, steps: int, *, stop: bool, save: bool) -> StepResult:
        before, self._reported = self._reported, self._sums.numpy()
        metrics = Measured(self._reported - before, self._means)
        is_finite = all(map(math.isfinite, metrics.values()))
        worker = int(self._not_finite.numpy())
        return StepResult(
            metrics=metrics,
            steps=steps,
            stop=stop,
            save=save,
            next_steps=self.course.total_steps,
            not_finite_step=None if is_finite else steps,
            not_finite_is_exact=False,
            not_finite_workers=() if worker < 0 else (str(Task(WORKER, worker)),),
        )

    def find_not_finite(self) -> NotFiniteState | None:
        """See `InnerLoop`."""
        return self._weights.find_not_finite()

    def _means(self, sums: Any) -> Mapping[str, float]:
        """The mean of each metric; nothing without an example."""
        return means_by_example(self._run.model.metrics, sums) if sums[-1] else {}

    def stream(self, first_step: int) -> Any:
        """The streams of all workers. Each has an order of its own; together they see as much as one would."""

        # Else AutoGraph would add its own lines to one of ours about the data.
        @as_written
        def examples() -> Any:
            return self._strategy.distribute_datasets_from_function(lambda context: self._share(context, first_step))

        return self._coordinator.create_per_worker_dataset(examples)

    def finalize(self) -> None:
        """What the optimizer does after the last step."""
        weight_average.finalize(weight_update.inner(self._optimizer), self.model.trainable_variables, self._strategy)

    def _schedule(self, iterator: Any, steps: int) -> None:
        self._coordinator.schedule(self._train_steps, args=(iterator, self._workers, tf.constant(steps, tf.int64)))
        self._scheduled += steps

    @as_written
    def _share(self, context: Any, first_step: int) -> Any:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        return self._run.data.batches(
            batch=context.get_per_replica_batch_size(self.batch),
            seed=self._run.config.seed + _WORKER_SEEDS * (worker + 1),
            first_step=first_step,
            # As far as with this batch all the time: each worker has an order of its own.
            offset=self.course.shift * context.get_per_replica_batch_size(self.batch),
        )

    def _find_late(self) -> Mapping[Task, str]:
        """See `Watch`."""
        if silent := find_silent(self._run.config.cluster.peers(WORKER, PS)):
            return silent
        busy = (Task(WORKER, index) for index, in_call in enumerate(self._in_call.numpy()) if in_call)
        return dict.fromkeys(busy, "waits in a step")

    @tf.function(reduce_retracing=True)
    def _train_steps(self, iterator: Any, workers: Any, steps: Any) -> None:
        worker = next(workers)
        self._in_call.scatter_update(tf.IndexedSlices([True], [worker]))
        with tf.control_dependencies([self._take(iterator, worker, steps)]):
            self._step.assign_add(steps)
            self._in_call.scatter_update(tf.IndexedSlices([False], [worker]))

    @tf.function(reduce_retracing=True)
    def _take(self, iterator: Any, worker: Any, steps: Any) -> Any:
        """A function of its own, so that what is to come after the steps can wait for it."""

        def one(taken: Any) -> tuple[Any]:
            self._strategy.run(self._train_step, args=(*next(iterator), worker))
            return (taken + 1,)

        # Not `for`: where functions run eagerly, one within another is not rewritten.
        return tf.while_loop(lambda taken: taken < steps, one, [tf.constant(0, tf.int64)])[0]

    def _loss(self, outputs: Any, labels: Any) -> Any:
        """The mean over a worker's batch, with the penalties of the layers; notes the metrics on the way."""
        losses, *others = self._run.model.compute_metrics(outputs, labels).values()
        penalty = tf.add_n([tf.constant(0.0), *self.model.losses])
        counted = [losses + penalty, *others, tf.ones_like(losses)]
        sums = tf.stack([tf.reduce_sum(values) for values in counted])
        self._sums.assign_add(tf.cast(sums, tf.float64))
        return tf.reduce_sum(losses) / self.batch + penalty

    def _train_step(self, inputs: Any, labels: Any, worker: Any) -> None:
        with tf.GradientTape() as tape:
            loss = self._loss(self.model(inputs, training=True), labels)
        # Before the update: what follows from it on other workers comes later.
        if not tf.math.is_finite(loss) and self._not_finite < 0:
            self._not_finite.assign(worker)
        weights = self.model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


def _worker() -> Any:
    """Index of the worker that this runs on, in the function of a dataset."""
    return tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int64)
