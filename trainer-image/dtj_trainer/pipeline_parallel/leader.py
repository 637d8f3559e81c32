"""The leader of a pipeline: it connects to the workers, drives the steps, saves, and finishes. Imports TensorFlow."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.checkpoint.finite_weights import FiniteWeights, NotFiniteState
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.config.cluster import WORKER, Task
from dtj_trainer.config.nonfinite import SKIP
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.distribution.stall_watch import building, step_watch
from dtj_trainer.distribution.strategies import peer_loss
from dtj_trainer.errors import PeerLost
from dtj_trainer.pipeline_parallel.graph_cut import cut
from dtj_trainer.pipeline_parallel.heartbeat import Heartbeat
from dtj_trainer.pipeline_parallel.stages import copies_of, decays_of, make_stages, share_counts, state_of, weights_of
from dtj_trainer.pipeline_parallel.step import PipelineStep
from dtj_trainer.pipeline_parallel.worker import leaving_mark
from dtj_trainer.process.ending import end_with
from dtj_trainer.training import optimizers
from dtj_trainer.training.controller import Controller, StepResult
from dtj_trainer.training.model import seed_alike
from dtj_trainer.training.outcome import finish
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.seen_examples import SeenExamples
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)


def connect(config: Config) -> None:
    """Makes this process the first among the servers of TF_CONFIG, which all have to be there."""
    task = config.cluster.task
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver.cluster_spec(), job_name=task.role, task_index=task.index)


def on_its_cpu(config: Config) -> AbstractContextManager[None]:
    """Keeps on this task's CPU whatever has no other place: a model that is cut need not fit into one GPU.

    So the whole model is built, saved, judged and exported there, and its parts are trained on the devices of the
    stages.
    """
    home: AbstractContextManager[None] = tf.device(config.cluster.task.cpu)
    return home


def train(run: Run) -> None:
    """Trains from the newest checkpoint, or from the start, to the last step, and finishes the run.

    Raises:
        Preempted: asked to stop, or one of the workers was; the state is saved.
        PeerLost: a worker is gone.
        UsageError: the model cannot be cut as asked, or the checkpoint is another model's.
    """
    config = run.config
    with peer_loss(config), _heartbeat(run):
        with building(config):
            training = _Training(run)
        controller = Controller(
            run, training, training.store,
            strategy=None,
            counter=training.counter,
            course=training.course,
            # Workers may answer and yet not reach each other.
            watch=step_watch(config, find_late=training.find_late),
            all_tasks_save=False,
        )  # fmt: skip
        training.introduce()
        controller.introduce()
        controller.train(training.stream, finalize=training.finalize)
        weights = [weight.numpy() for weight in weights_of(training.stages)]
    finish(
        run, controller.reporter, controller.summaries,
        weights=weights,
        step=controller.step,
        checkpoint=training.store.path(),
        batch=training.micro_batch,
    )  # fmt: skip


class _Training:
    """The stages on the workers, and the inner loop that drives them."""

    def __init__(self, run: Run) -> None:
        config = run.config
        assert config.pipeline is not None  # a checked configuration
        self._run = run
        self._layout = config.pipeline
        self.batch = config.batch_size.over(1)
        self.micro_batch = self.batch // self._layout.micro_batches
        course = Course(examples=run.data.examples, epochs=config.epochs, batch=self.batch)
        seed_alike(config)
        model = run.model.build(run.data)
        self._parts = cut(model, self._layout)
        devices = [_device(self._layout.worker(stage)) for stage in range(self._layout.stages)]
        made = optimizers.make(model, config.learning, total_steps=course.total_steps)
        make_optimizer = copies_of(made.optimizer)
        self.stages = make_stages(model, self._parts, devices, make_optimizer, decays_of(made.optimizer))
        self.counter, total = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        seen = SeenExamples(run, course, step=self.counter, total_steps=total)
        names, parts = state_of(self.stages, model, make_optimizer)
        # Else every worker would want to write to the directory itself.
        self.store = Store.of(
            seen.state(names, **parts), config.checkpoint, writes=True, io_device=config.cluster.task.cpu
        )
        self.course = seen.restore(self.store)
        share_counts(self.stages)
        self._learning = made.over(self.course.total_steps).description
        self._finite = [
            FiniteWeights(
                (variable.value for variable in stage.trainable),
                (variable.value for variable in stage.state),
                two_kerases.state(stage.optimizer) if stage.trainable else (),
            )
            for stage in self.stages
        ]
        self._pipeline = PipelineStep(
            layout=self._layout, model=run.model, stages=self.stages, step=self.counter,
            batch=self.batch, skips=config.on_nan == SKIP,
        )  # fmt: skip

    def introduce(self) -> None:
        """Says what is trained how."""
        run, layout, config = self._run, self._layout, self._run.config
        log.info(
            f"batch {self.batch} global, {layout.micro_batches} micro-batches of {self.micro_batch}  "
            f"stages {layout.stages}  {self._learning}  "
            f"{self.course.total_steps} steps: {config.epochs} epochs of {run.data.examples} examples"
        )
        for place, part in enumerate(self._parts):
            log.info(f"stage {place}: {part}, {part.parameters:,} parameters")

    @property
    def first_steps(self) -> int:
        """See `InnerLoop`."""
        return self._run.config.steps_per_call

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """See `InnerLoop`."""
        return self._pipeline.run(iterator, steps, vote)

    def find_not_finite(self) -> NotFiniteState | None:
        """See `InnerLoop`."""
        states = []
        for stage, finite in zip(self.stages, self._finite, strict=True):
            # There, and not here: the variables would have to come over the network.
            with tf.device(stage.device):
                states.append(finite.find_not_finite())
        if not (found := next((state for state in states if state), None)):
            return None
        first = self._pipeline.gradients_not_finite
        of_stages = [self._layout.describe(stage) for stage, state in enumerate(states) if state]
        return replace(found, workers=[first] if first else of_stages)

    def stream(self, first_step: int) -> Any:
        """The batches from this step on."""
        return self._run.data.batches(
            batch=self.batch, seed=self._run.config.seed, first_step=first_step, offset=self.course.offset
        )

    def find_late(self) -> Mapping[Task, str]:
        """See `Watch`."""
        return self._pipeline.find_late(self._run.config.cluster.task)

    def finalize(self) -> None:
        """What the optimizers do after the last step."""
        for stage in self.stages:
            stage.finalize()


def _device(task: Task) -> str:
    """A task's processor: its GPU, where the workers have one, else its CPU."""
    gpus = [d.name for d in tf.config.list_logical_devices("GPU") if d.name.startswith(task.devices)]
    return gpus[0] if gpus else task.cpu


def _heartbeat(run: Run) -> Heartbeat:
    peers = run.config.cluster.peers(WORKER)

    def on_termination(worker: str) -> None:
        if not run.termination.saves:
            end_with(PeerLost(f"peer lost: {worker} was asked to stop"))
        log.info(f"{worker} was asked to stop: saving a checkpoint, then leaving")
        run.termination.requested = True

    return Heartbeat(
        {str(task): task.cpu for task in peers},
        {str(task): leaving_mark(address, job_uid=run.config.job_uid) for task, address in peers.items()},
        on_termination=on_termination,
        end_with=end_with,
    )
