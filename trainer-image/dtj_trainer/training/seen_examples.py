"""How many examples a run has seen, as its checkpoints hold it, and where a run that resumes goes on.

The step alone does not tell: with another batch, such as that of another number of replicas, it is another place in
the data. Imports TensorFlow.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.config.execution import BatchSize
from dtj_trainer.errors import UsageError
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)

_UNKNOWN = -1


class SeenExamples:
    """Two parts of a checkpoint: see `State`."""

    def __init__(self, course: Course, step: Any) -> None:
        """Args:
        course: as it is without a checkpoint.
        step: int64 tf.Variable; counts the steps done.
        """
        self.course = course
        """Which examples the steps take; after `resume`, from the restored step on."""
        self._step = step
        with tf.device("CPU:0"):
            self._examples, self._batch = (
                tf.Variable(_UNKNOWN, dtype=tf.int64, trainable=False) for _ in ("examples", "batch")
            )

    @property
    def parts(self) -> Mapping[str, Sequence[Any]]:
        """What a checkpoint holds, by the names of the parts."""
        return {"examples": [self._examples], "batch": [self._batch]}

    def refresh(self) -> None:
        """Puts what is seen by now into the variables; before each checkpoint."""
        self._examples.assign(self.course.seen(int(self._step.numpy())))
        self._batch.assign(self.course.batch)

    def resume(self, asked: BatchSize, path: str | None, *, total_steps: int, leads: bool) -> Course:
        """Goes on after the examples that the restored checkpoint has seen; returns the course from there on.

        Args:
            asked: what the batch is by the command line.
            path: of the checkpoint; None: the run begins.
            total_steps: of the run that wrote the checkpoint, as it holds it.
            leads: whether this task reports.

        Raises:
            UsageError: it is not known at which example the run goes on.
        """
        if path is None:
            return self.course
        step, seen, before = (int(each.numpy()) for each in (self._step, self._examples, self._batch))
        batch = self.course.batch
        if seen == _UNKNOWN:
            self._check_of_older_version(asked, path, step=step, total_steps=total_steps, warns=leads)
            return self.course
        course = self.course.resumed(step, seen=seen)
        if leads and before != batch:
            log.info(
                f"the global batch was {before} and is {batch} ({_option(asked)}): the run goes on after the {seen} "
                f"examples that it has seen, and has {course.total_steps} steps in all"
            )
        self.course = course
        return course

    def _check_of_older_version(self, asked: BatchSize, path: str, *, step: int, total_steps: int, warns: bool) -> None:
        """That the batch of a checkpoint that does not say it can be this run's."""
        course = self.course
        taken_for = (
            f"checkpoint {path}: an older version wrote it, so that it does not say its batch; it is taken for one of "
            f"{course.batch} ({_option(asked)})"
        )
        if total_steps == course.total_steps:
            # Another batch and another --epochs may come to the same number.
            if warns:
                log.info(taken_for)
            return
        # With another --epochs the steps of the other run are as many as some number of epochs has.
        epochs = total_steps * course.batch // course.examples
        is_possible = epochs and -(-epochs * course.examples // course.batch) == total_steps
        if asked.per_replica or not is_possible or step > course.total_steps:
            raise UsageError(
                f"checkpoint {path}: an older version wrote it, so that it does not say its batch; it is of a run of "
                f"{total_steps} steps, and this one has {course.total_steps} with a global batch of {course.batch} "
                f"({_option(asked)}); resume once with the batch, the number of replicas and --epochs of that run"
            )
        if warns:
            log.warning(f"{taken_for} and of {epochs} epochs")


def _option(asked: BatchSize) -> str:
    return f"--{'per-replica-' if asked.per_replica else ''}batch-size={asked.examples}"
