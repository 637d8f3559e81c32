"""One run as its leader, or its only process, reports it: progress lines, status, TensorBoard, metrics, result.

Shared by the synchronous strategies, the coordinator of parameter servers and the evaluator. Scalars are written as
TensorFlow's own `tf.summary.scalar` would, which is not there without the tensorboard package. Imports TensorFlow.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import tensorflow as tf

from dtj_launch.metrics_file import SPEED, MetricsFile
from dtj_launch.progress import Meter, ProgressStore
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.held_out_examples import HeldOut
from dtj_trainer.data.source import Source
from dtj_trainer.periodic import ComputeTimer, Every
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.progress_line import progress_fields, progress_line
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)


class Summaries:
    """One run of TensorBoard's: a directory of event files. The same goes to the metrics file, if there is one."""

    def __init__(self, directory: Path | None, *, prefix: str = "") -> None:
        """Without a directory nothing is written. ``prefix`` is of the names in the metrics file, which is one of all
        runs."""
        self._metrics_file = MetricsFile()
        self._prefix = prefix
        self._writer = tf.summary.create_file_writer(str(directory)) if directory else None
        plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        self._metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class="DATA_CLASS_SCALAR")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each named curve."""
        if self._writer is None:
            return
        self._metrics_file.write(step, {f"{self._prefix}{name}": value for name, value in values.items()})
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step=step, metadata=self._metadata)

    def flush(self) -> None:
        """Puts what was written on disk."""
        if self._writer is not None:
            self._writer.flush()


@dataclass(frozen=True, kw_only=True)
class Run:
    """What every part of a run needs to know."""

    context: TaskContext
    model: ModelFactory
    data: Source

    @property
    def config(self) -> Config:
        """What this task is to do."""
        return self.context.config

    @property
    def progress_store(self) -> ProgressStore:
        """Where progress is shown."""
        return self.context.progress_store

    @property
    def termination(self) -> Termination:
        """Whether this task was asked to stop."""
        return self.context.termination

    @cached_property
    def validation_data(self) -> HeldOut:
        """The held-out examples of the data."""
        files, own = self.config.data, self.config.user_code.data
        if own:
            return HeldOut(self.data, str(own))
        if files.where:
            chosen = isinstance(files.validation, str)
            return HeldOut(self.data, f"--held-out={files.validation}" if chosen else f"--data-dir={files.where}")
        return HeldOut(self.data, self.data.name)


class Reporter:
    """Reports how far the training is, at a bearable pace; keeps silent where this task is not the leader."""

    def __init__(self, run: Run, summaries: Summaries, *, course: Course, step: int) -> None:
        self._run = run
        self._summaries = summaries
        self._course = course
        self.first_step = step
        self._total_steps = course.total_steps
        self._line_due = Every(run.config.progress_seconds)
        self._paused = 0.0
        self.meter = Meter(batch=course.batch, step=step, clock=self._clock)
        self._own_part = ComputeTimer(clock=self._clock)
        self._started = time.monotonic()
        self._starting = True
        run.context.startup.lap("build")

    @property
    def seconds(self) -> float:
        """Since the training began."""
        return time.monotonic() - self._started

    def _clock(self) -> float:
        return time.monotonic() - self._paused

    def pause(self, seconds: float) -> None:
        """Notes that this many seconds were spent on something else than steps."""
        self._paused += seconds

    def report(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        validated: Mapping[str, float] = MappingProxyType({}),
        last_checkpoint_step: int | None,
        waited: float | None = None,
    ) -> None:
        """Notes that this step is done, and where the metrics stood on the way to it.

        Args:
            validated: what the newest validation gave.
            waited: seconds in all that this task waited for others to take its steps; None where it is not known.
        """
        self.meter.mark(step)
        run = self._run
        if self._starting:
            self._starting = False
            run.context.startup.lap("first steps")
            if run.config.cluster.leads:
                log.info(run.context.startup.summary())
        progress = run.progress_store.update(
            step=step,
            total_steps=self._total_steps,
            epoch=self._course.epoch_of(step),
            epochs=run.config.epochs,
            examples_per_second=self.meter.examples_per_second,
            eta_seconds=self.meter.eta(self._total_steps),
            metrics={**metrics, **validated},
            last_checkpoint_step=last_checkpoint_step,
            step_seconds=None if waited is None else self._own_part.mark(step, waited=waited),
        )
        rate = progress.examples_per_second
        self._summaries.write(step, dict(metrics) | ({} if rate is None else {SPEED: rate}))
        if run.config.cluster.leads and (self._line_due.due() or step >= self._total_steps):
            log.info(progress_line(progress), extra=progress_fields(progress))
